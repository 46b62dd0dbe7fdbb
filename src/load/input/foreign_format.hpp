// SPDX-License-Identifier: BSD-3-Clause
//
// Names formats that no reader understands, so that their bytes are not taken for text.
#pragma once

#include <string>
#include <string_view>

namespace paracel {

/// Throws data_error `file: found ..., want ...` if the first bytes of an input (4 KiB, or all there are) are those of
/// a compressed file other than gzip and zstd, an archive, a binary table, or text in UTF-16 or UTF-32.
void refuse_foreign_format(const std::string& file, std::string_view front);

}  // namespace paracel
