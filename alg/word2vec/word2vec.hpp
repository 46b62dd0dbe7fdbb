// SPDX-License-Identifier: BSD-3-Clause
//
// Vectors of words from the words around them, on the parameter servers: skip-gram or CBOW, with negative sampling or
// hierarchical softmax (word2vec_kernel.hpp has the formulas).
//
// The vectors and the other side of the model are rows of two tables. A worker cuts its part of the text into batches;
// it pulls the rows that a batch touches, each once, trains on the batch in its own copy of them, and sends the
// changes, which the servers add. Meanwhile the rows of the next batch are in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <paracel/consistency.hpp>
#include <paracel/paralg.hpp>
#include <paracel/settings.hpp>
#include <paracel/table.hpp>

#include "alg/common/output/model_file.hpp"
#include "alg/common/output/run_log.hpp"
#include "word2vec_batch.hpp"
#include "word_vectors.hpp"

namespace paracel::alg {

enum class vector_format { text, binary, npy };

struct word2vec_settings {
  static constexpr auto program = "word2vec";
  static constexpr auto summary = "vectors of words: skip-gram or CBOW, negative sampling or hierarchical softmax";
  void keys(key_list& k);
  void check(const config& from);

  std::vector<std::string> input;
  std::string output = "./word2vec_result/";
  vector_format format = vector_format::text;
  bool by_space = true;  ///< words are runs of bytes that are not white space; false: of [-A-Za-z0-9_]
  word2vec_model model;
  std::uint64_t min_count = 5;
  int rounds = 5;
  std::uint64_t batch_size = 0;
  paracel::consistency consistency = paracel::consistency::bsp();
  std::string model_input;
  initial_model initial;
  std::string k_place;  ///< of the key k, if it is given
  std::string method_place;
  std::vector<std::string> test_input;
  std::vector<std::string> predict_input;
  std::size_t topk = 10;
  bool debug = false;
};

/// A model that training continues.
struct word2vec_state {
  vocabulary words;
  std::vector<float> vectors;  ///< k numbers a word
  std::vector<float> outputs;
};

class word2vec : public paralg {
 public:
  using settings_type = word2vec_settings;

  word2vec(Comm comm, const std::string& server_info, const word2vec_settings& settings);

  /// Loads, trains (or reads vectors), writes the vectors, tests and predicts. Throws: data_error; error when the loss
  /// diverges.
  void solve() override;

 private:
  void read_initial();
  void load();
  void train();
  void push_initial(table<float>& input, table<float>& output);
  void finish_round(int round, word2vec_loss& loss);
  /// Writes the results of training; `use` tests and predicts with the vectors.
  void write(table<float>& vectors, table<float>& outputs);
  void write_file(table<float>& vectors);
  void write_npy(table<float>& vectors, table<float>& outputs);
  [[nodiscard]] word_vectors all_vectors(table<float>& vectors);
  void use(const word_vectors& vectors);
  void test(const word_vectors& vectors, const word_neighbours& near);
  void predict(const word_vectors& vectors, const word_neighbours& near);

  word2vec_settings settings_;
  run_log log_;
  vocabulary words_;
  token_text text_;
  batch_plan plan_;
  word2vec_state initial_;
};

}  // namespace paracel::alg
