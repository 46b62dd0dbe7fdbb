// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>
#include <vector>

/// Open MPI's communicator, declared here so that this header does not need mpi.h.
struct ompi_communicator_t;

namespace paracel {

class comm_backend;
class session;

/// The first object of a program's main: finds out how the process was launched and leaves the job at its end.
///
/// * `prun.py -m local`: PARACEL_RENDEZVOUS, PARACEL_RANK and PARACEL_SIZE are in the environment.
/// * `prun.py -m mpi`, or mpirun by hand: MPI is initialised here and finalised by the destructor.
/// * neither: embedded mode. One worker, and a server inside this process that lives as long as this object.
///
/// One object per process, created by `run` (run.hpp, which says how a program ends) or by main. When an exception
/// destroys it, it leaves the job without deregistering, so that the launcher tells the others of the failure and they
/// do not wait.
class main_env {
 public:
  main_env(int& argc, char**& argv);
  ~main_env();
  main_env(const main_env&) = delete;
  main_env& operator=(const main_env&) = delete;

  /// The job of this process. `server_info` (from --server_info) may name the rendezvous when the environment does not.
  /// Joins on the first call. Blocks: until every server and worker has joined, at most the scheduler's join timeout.
  /// Throws: job_error when the job ends first, or the scheduler does not answer.
  static std::shared_ptr<session> job(const std::string& server_info = "");

  /// Registers input files, models (folders, or their model.json) included: results of an earlier run that the program
  /// reads are not removed from its output folder. Call it before the first paralg is made.
  static void keep_inputs(const std::vector<std::string>& paths);

  /// The backend of `Comm`: under mpirun that communicator (null: all workers), elsewhere the scheduler's.
  static std::shared_ptr<comm_backend> communicator(ompi_communicator_t* of);

 private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace paracel
