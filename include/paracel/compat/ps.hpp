// SPDX-License-Identifier: BSD-3-Clause
//
// For programs written for Paracel 0.3: `paralg`, `Comm` and `main_env` under their old header's name. New programs
// include <paracel/paralg.hpp>.
#pragma once

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1  // mpi.h would include MPI's C++ bindings and require their library
#endif
#include <mpi.h>

#include <paracel/comm.hpp>
#include <paracel/main_env.hpp>
#include <paracel/paralg.hpp>

#include "graph.hpp"
#include "load.hpp"
#include "packer.hpp"
#include "paracel_types.hpp"
#include "utils.hpp"
