// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#if __has_include(<mpi.h>)
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#include <mpi.h>
#endif

#include <paracel/comm.hpp>
#include <paracel/main_env.hpp>

#include "../paracel_types.hpp"

#if __has_include(<mpi.h>)
/// What Comm::wait does with an MPI_Request.
inline void paracel_wait_for_mpi(MPI_Request& request) { MPI_Wait(&request, MPI_STATUS_IGNORE); }
#endif
