// SPDX-License-Identifier: BSD-3-Clause
//
// Steps of a load that fail on every worker if they fail on one, so that none waits for another that has failed.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/error.hpp>

namespace paracel {

/// Runs `step` on every worker.
/// Throws: on every worker the exception of the lowest failing rank: of the kinds in error.hpp the same kind,
///         with the same text. Other exceptions become an `error`.
/// Blocks: a collective. Cost: one round trip.
inline void all_or_throw(Comm& comm, const std::function<void()>& step) {
  std::string said;  // the status, a blank and the text; empty: success
  std::exception_ptr own;
  try {
    step();
  } catch (const job_error&) {
    throw;  // the job is over: no rank waits any more
  } catch (const error& e) {
    own = std::current_exception();
    said = std::to_string(e.status()) + ' ' + e.what();
  } catch (const std::exception& e) {
    own = std::current_exception();
    said = std::to_string(exit_status::failure) + ' ' + e.what();
  }
  const auto all = comm.allgather(said);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].empty()) continue;
    if (r == comm.get_rank()) std::rethrow_exception(own);
    const int status = std::stoi(all[r]);
    const auto text = all[r].substr(all[r].find(' ') + 1);
    if (status == exit_status::data) throw data_error(text);
    if (status == exit_status::config) throw config_error(text);
    throw error(text, status);
  }
}

}  // namespace paracel
