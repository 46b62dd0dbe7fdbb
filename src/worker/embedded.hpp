// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

namespace paracel {

class session;

/// Starts a server inside this process and returns a job of one worker on it. Defined in src/embed, the only place that
/// knows both sides.
std::shared_ptr<session> start_embedded_job();

}  // namespace paracel
