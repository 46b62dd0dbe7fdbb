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

/// A process whose main is not ours: an interpreter that has loaded the framework.
struct host_process {
  std::string program;                        ///< its name, for messages
  std::vector<std::string> plugin_folders{};  ///< further ones of a server inside this process
  void (*while_waiting)() = nullptr;          ///< called at least every 100 ms in a call that waits; may throw
};

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
  /// For a process that is not ours to end. It leaves the job in `leave`; neither exit nor an uncaught exception of
  /// another thread is handled, and malloc keeps its settings unless prun.py has started the process.
  explicit main_env(const host_process& host);
  ~main_env();
  main_env(const main_env&) = delete;
  main_env& operator=(const main_env&) = delete;

  /// Leaves the job; the destructor then does nothing. `failed`: without deregistering, as when an exception
  /// destroys this object. Throws: the error of an update that nobody has waited for.
  void leave(bool failed);

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
  void enter(int& argc, char**& argv);
  std::unique_ptr<impl> impl_;
};

}  // namespace paracel
