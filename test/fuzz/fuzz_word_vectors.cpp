// SPDX-License-Identifier: BSD-3-Clause
//
// Arbitrary bytes are vectors of words, as text or binary, or a data_error; accepted vectors are finite, of distinct
// words, and the same when they are written and read again.
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "alg/word2vec/word_vectors.hpp"
#include "paracel/error.hpp"
#include "property.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  using namespace paracel::alg;
  const bool binary = data[0] % 2 == 1;
  word_vectors vectors;
  try {
    vectors = parse_word_vectors("fuzz", {reinterpret_cast<const char*>(data) + 1, size - 1}, binary);
  } catch (const paracel::data_error&) {
    return 0;
  }
  require(vectors.width > 0 && vectors.value.size() == vectors.size() * vectors.width);
  for (const float v : vectors.value) require(std::isfinite(v));
  auto text = word_vectors_header(vectors.size(), vectors.width);
  for (std::size_t w = 0; w < vectors.size(); ++w) {
    require(!vectors.words[w].empty());
    append_word_vector(text, vectors.words[w], vectors.row(w), binary);
  }
  const auto again = parse_word_vectors("again", text, binary);
  require(again.words.ids() == vectors.words.ids() && again.value == vectors.value);
  return 0;
}
