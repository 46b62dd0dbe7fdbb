// SPDX-License-Identifier: BSD-3-Clause
//
// What libparacel_mpi.so exports. It is loaded only under mpirun, so that other programs do not pay for MPI's start-up.
#pragma once

#include "worker/comm/comm_backend.hpp"

extern "C" {
/// Initialises MPI unless the program has done so. Returns 1 if this call did, so that it also finalises.
int paracel_mpi_init(int* argc, char*** argv);
void paracel_mpi_finalize();
/// A backend on a duplicate of `communicator` (null: MPI_COMM_WORLD). Collective. The caller deletes it.
paracel::comm_backend* paracel_mpi_comm(ompi_communicator_t* communicator);
}
