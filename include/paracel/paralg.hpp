// SPDX-License-Identifier: BSD-3-Clause
//
// The base class of every algorithm. A subclass reads, updates and writes parameters by key as if they were its own
// variables; they live in the servers, sharded by key. `iter_commit` marks the end of an iteration.
//
// What a read may miss is one rule, with the staleness s (limit_s): a worker that has finished c iterations may read
// while c - slowest <= s; what it then reads contains at least every update of every worker's first c - s iterations,
// and all of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <paracel/bulk_access.hpp>
#include <paracel/comm.hpp>
#include <paracel/consistency.hpp>
#include <paracel/error.hpp>
#include <paracel/graph_loading.hpp>
#include <paracel/main_env.hpp>
#include <paracel/samples.hpp>
#include <paracel/saved_state.hpp>
#include <paracel/text_output.hpp>
#include <paracel/types.hpp>

namespace paracel {

class input_set;
class parasrv;

/// One line of a run's progress.
struct progress_report {
  int round = 0;
  int rounds = 0;
  double objective = 0;           ///< what is being watched,
  str_type metric = "objective";  ///< and what it is called
};
/// Base class of algorithms: Paracel's `paralg`.
///
/// Thread-safety: none; use it on the thread that made it.
/// Throws: every call that talks to a server may throw job_error (the job ended: the first cause), network_error (says
/// whether the request may have been applied), plugin_error (an update function failed; the value is unchanged) and
/// type_error.
class paralg : public graph_loading, public bulk_access {
 public:
  /// Joins the job. `server_info` is what prun.py passes as --server_info; empty: what main_env found.
  /// `output`: folder of results, made if it is not there. It belongs to this job until the process ends: another job
  /// that would write there is refused, and what this program's last run has written there is removed (its results,
  /// that is: not what was appended to, objects of pkl_dat, or files of others). Blocks: until every server and worker
  /// has joined.
  paralg(const str_type& server_info, Comm comm, const str_type& output, int rounds, const consistency& c);
  /// The form of Paracel 0.3. `ssp_switch`: SSP with the staleness `limit_s` (0 too); false is ASP, and `limit_s` is
  /// the staleness of a later set_consistency(ssp).
  paralg(const str_type& server_info, Comm comm, const str_type& output = "", int rounds = 1, int limit_s = 0,
         bool ssp_switch = false);
  /// The same with the server info of main_env.
  explicit paralg(Comm comm, const str_type& output = "", int rounds = 1)
      : paralg("", std::move(comm), output, rounds) {}
  virtual ~paralg();
  paralg(const paralg&) = delete;
  paralg& operator=(const paralg&) = delete;

  /// The algorithm. Empty here, so that a program may also use a paralg directly.
  virtual void solve() {}

  // ---- input. Every worker must call these, paracel_loadall and its sequential form apart: worker 0 says which files
  // there are and how long, and the others read just that. Throws: data_error on every worker when a file cannot be
  // read, or is no longer what worker 0 saw (growth by appending is fine, and not read). Blocks: a collective.

  /// Lines of this worker's part of the input: a file, a list of files, a folder, a glob pattern, or "-", standard
  /// input, all of which is worker 0's. What is compressed by gzip or zstd goes whole to one worker.
  template <class T>
  list_type<str_type> paracel_load(const T& files) {
    list_type<str_type> lines;
    visit_part(list_of(files), get_worker_id(), get_worker_size(),
               [&](str_type&& line) { lines.push_back(std::move(line)); });
    return lines;
  }
  /// 0.3's form: the lines come as they are; the parser is for whoever takes them apart.
  template <class T>
  list_type<str_type> paracel_load(const T& files, const parser_type& /*parser*/) {
    return paracel_load(files);
  }
  /// All lines of the input. A worker may call it alone, as programs for 0.3 do: each reads the files as it finds them.
  /// For standard input, which worker 0 passes on, it is a collective like the others.
  template <class T>
  list_type<str_type> paracel_loadall(const T& files) {
    return load_all(list_of(files));
  }
  /// `func(lines)` with every worker's part of the input, one part after the other: paracel_loadall for those to whom
  /// all lines at once are too many.
  template <class T, class F>
  void paracel_sequential_loadall(const T& files, F&& func) {
    load_parts(list_of(files), [&](list_type<str_type>& lines) { func(lines); });
  }
  /// `func(line)` with each line of this worker's part of the input; no more than a piece of it is kept.
  /// `pattern` only becomes that of get_decomp_info: lines stay with the worker that reads them.
  template <class T, class F>
  void paracel_load_handle(const T& files, F&& func, const str_type& pattern = "linesplit", bool /*mix_flag*/ = false) {
    set_decomp_info(pattern);
    visit_part(list_of(files), get_worker_id(), get_worker_size(), [&](str_type&& line) { func(line); });
  }
  // ---- clock, workers -----------------------------------------------------------------------------------------------

  /// On: what paracel_update adds (functions declared additive, numbers) is added up in this worker, key by key, and
  /// sent at the end of the iteration, many keys a request; before that only when its future is asked, or when a read
  /// or another call of the key goes to the server. Off: every update is sent at once. Under SSP it is on, because
  /// nobody may count on seeing an update before its iteration ends; under ASP it is off unless switched on; under BSP
  /// always off.
  void set_combining(bool on);

  /// On: under SSP, when the slowest worker finishes an iteration, the servers send this worker what has changed of the
  /// keys that it reads through its cache, so that a later read finds them there. Costs the traffic of each change that
  /// is then not read. Off unless switched on; see tool/bench/README.md.
  void set_push(bool on);
  /// Switches that on, and reads these keys into the cache. Keys that are read later are added by themselves; one that
  /// is not read for 8 iterations is dropped again. Throws: key_error when one is not there.
  void paracel_subscribe(const list_type<str_type>& keys);

  /// The end of an iteration: waits until its updates are acknowledged and ticks the clock, under every consistency.
  /// Under BSP they take effect when every worker has done so; those that none follows are lost, with a warning. Where
  /// the job makes a checkpoint it also calls checkpoint_state, and waits until all of it is on the disk. Cost: one
  /// round trip. Throws: what an unwatched update went wrong with.
  void iter_commit();

  // ---- checkpoints (doc/checkpoints.md)
  // -------------------------------------------------------------------------------
  //
  //   if (!resumed()) write_initial_parameters();
  //   for (int round = first_iteration(); round < rounds; ++round) { ...; iter_commit(); }

  /// Whether it goes on from a checkpoint, or from where a worker was that died: the parameters are in the servers.
  [[nodiscard]] bool resumed() const;
  /// How many iterations this algorithm had committed then; 0 otherwise. The first call hands restore_state what
  /// checkpoint_state has kept. A worker can be replaced if it is called where the loop begins (doc/workers.md).
  int first_iteration();
  /// What this worker needs, beside the parameters and its data, to go on after the iteration that was just committed:
  /// called inside iter_commit. What it throws makes the checkpoint fail, and nothing else.
  virtual void checkpoint_state(saved_state& /*to*/) {}
  /// Called inside first_iteration.
  virtual void restore_state(const saved_states& /*from*/) {}

  /// After so many commits reads come from the servers, not from the cache. Default: `rounds`.
  void set_total_iters(int n);
  /// asp, ssp (with the staleness of the constructor) or bsp. Call it on every worker before the first read or update.
  void set_consistency(consistency_model model);
  [[nodiscard]] consistency_model get_consistency() const;
  /// Iterations that this worker was ahead of the slowest it knew of at its last read.
  [[nodiscard]] std::uint32_t last_staleness() const;

  /// A barrier of all workers: what each has updated before is in the servers when it returns, and visible to all;
  /// under BSP that is what was updated before the last iter_commit of the slowest worker, because the barrier ends no
  /// iteration. Throws: what an unwatched update went wrong with, or what BSP could not fold.
  void paracel_sync();

  [[nodiscard]] std::size_t get_worker_id() const { return comm_.get_rank(); }
  [[nodiscard]] std::size_t get_worker_size() const { return comm_.get_size(); }
  [[nodiscard]] std::size_t get_server_size() const;
  [[nodiscard]] Comm get_comm() const { return comm_; }
  [[nodiscard]] const str_type& get_output() const { return output_; }
  /// For what the framework builds on it (array.hpp, table.hpp); its header is not installed.
  [[nodiscard]] parasrv& servers() { return *servers_; }

  /// Rank 0's progress, shown by prun.py; other ranks' calls do nothing. At most ten a second are sent, and the last.
  void report_progress(const progress_report& report);

  // ---- results: files below the output folder
  // -------------------------------------------------------------------------- Numbers are written with every bit.
  // Throws: data_error that names the file, also when it would not be below the output folder. Cost: memory for some
  // megabytes of text, whatever is written or merged.

  // A file is whole or not there; one that is appended to keeps what it had when that fails.

  /// On: paracel_dump_vector, _dict, _prob_mtx and _pieces make one file of all workers in place of one a worker. They
  /// are then collectives: every worker calls them, in the same order, one that has nothing with nothing. A file holds
  /// what those of the workers would have held, in rank order, and exists when the call returns, on every worker. Its
  /// name is that of result_name, with `merge` <filename>merge. What worker 0 alone has goes to a path of
  /// paracel_result instead. On from the start where the config has "output_files": 1 and the schema has that key
  /// (config_schema::add_output_files); otherwise off, and each call concerns only the worker that makes it. The same
  /// on every worker. Throws (the calls): on every worker what one of them threw; no part of the file is left, and what
  /// was there stays. Cost: each byte travels once, to worker 0; memory for some pieces of 4 MiB a worker, whatever is
  /// written.
  void set_one_output_file(bool on) { one_output_file_ = on; }
  [[nodiscard]] bool one_output_file() const { return one_output_file_; }
  /// What a result of this worker is called below the output folder: <filename><rank><ending>; with one file of all
  /// workers <filename><ending> without the _ at the end of `filename`, and with the ending .txt where it has none.
  [[nodiscard]] str_type result_name(const str_type& filename, const str_type& ending = "") const;

  /// <output>/<name>, the path of a result that the caller writes himself: this program's next run with this output
  /// folder removes it.
  str_type paracel_result(const str_type& name);

  /// Writes `data` to <output>/<filename><rank>, elements joined by `sep`.
  /// `append_flag`: after what is there. `merge` (every worker must call): rank 0 then joins what all ranks have
  /// written now, in rank order, into <output>/<filename>merge, which is there when its own call returns.
  template <class V>
  void paracel_dump_vector(const list_type<V>& data, const str_type& filename = "result_", const str_type& sep = ",",
                           bool append_flag = false, bool merge = false) {
    std::size_t i = 0;
    dump(filename, "", append_flag, merge, [&](str_type& text) {
      if (i == data.size()) return false;
      if (i > 0) text += sep;
      append_text(text, data[i]);
      if (++i == data.size()) text += '\n';
      return true;
    });
  }
  /// Those elements whose index has a name in `id_map`, as name:element.
  template <class V>
  void paracel_dump_vector(const list_type<V>& data, const dict_type<std::size_t, str_type>& id_map,
                           const str_type& filename = "result_", const str_type& sep = ",", bool append_flag = false,
                           bool merge = false) {
    list_type<std::pair<str_type, V>> named;
    for (std::size_t i = 0; i < data.size(); ++i)
      if (const auto name = id_map.find(i); name != id_map.end()) named.emplace_back(name->second, data[i]);
    paracel_dump_vector(named, filename, sep, append_flag, merge);
  }

  /// Writes a line for each key, in their order: key, a tab (or `sep`), value. The elements of a list have | between
  /// them, pairs : and triples a comma. The rest as paracel_dump_vector.
  template <class K, class V>
  void paracel_dump_dict(const dict_type<K, V>& data, const str_type& filename = "result_", bool append_flag = false,
                         bool merge = false) {
    paracel_dump_dict(data, filename, str_type("\t"), append_flag, merge);
  }
  template <class K, class V>
  void paracel_dump_dict(const dict_type<K, V>& data, const str_type& filename, const str_type& sep,
                         bool append_flag = false, bool merge = false) {
    std::vector<const std::pair<const K, V>*> rows;
    rows.reserve(data.size());
    for (const auto& row : data) rows.push_back(&row);
    std::sort(rows.begin(), rows.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
    auto row = rows.begin();
    dump(filename, "", append_flag, merge, [&](str_type& text) {
      if (row == rows.end()) return false;
      append_row(text, (*row)->first, sep, (*row)->second);
      text += '\n';
      ++row;
      return true;
    });
  }
  template <class K, class V>  // otherwise a literal would be a bool
  void paracel_dump_dict(const dict_type<K, V>& data, const str_type& filename, const char* sep,
                         bool append_flag = false, bool merge = false) {
    paracel_dump_dict(data, filename, str_type(sep), append_flag, merge);
  }
  /// The same without the rows that have no element.
  void paracel_dump_prob_mtx(const dict_type<str_type, list_type<std::pair<str_type, double>>>& data,
                             const str_type& filename = "result_", bool append_flag = false, bool merge = false) {
    auto rows = data;
    std::erase_if(rows, [](const auto& row) { return row.second.empty(); });
    paracel_dump_dict(rows, filename, append_flag, merge);
  }

  /// Writes a result that is not in memory at once to the file that result_name(filename, ending) names: `next` appends
  /// a piece of it to its argument each time that it is called, or returns false: there is no more.
  void paracel_dump_pieces(const str_type& filename, const std::function<bool(str_type&)>& next,
                           const str_type& ending = "") {
    dump(filename, ending, false, false, next);
  }

  /// Joins files (a file, a list, a folder or a glob pattern; sorted) into <output>/<prefix>merge, which is left out if
  /// it is one of them. Only the worker that calls does anything.
  template <class T>
  void files_merge(const T& files, const str_type& prefix = "result_", bool append_flag = false) {
    merge_files(expand(files), prefix, append_flag);
  }
  /// Folds every worker's `data` with func(received, accumulator) in rank order; rank `root` gets the result, the
  /// others a T of their own. Every worker must call it.
  template <class T, class F>
  T data_merge(T& data, F&& func, Comm& comm, int root = 0) {
    return comm.treereduce(data, std::forward<F>(func), static_cast<std::size_t>(root));
  }
  template <class T, class F>
  T data_merge(T& data, F&& func, int root = 0) {
    return data_merge(data, std::forward<F>(func), comm_, root);
  }

  /// Writes anything that can be a value to <output>/<prefix><rank>.pkl and returns that path. The file is whole or not
  /// there.
  template <class T>
  str_type pkl_dat(const T& data, const str_type& prefix = "tmp") {
    const encoded<T> e(data);
    return write_object(prefix, e.view());
  }
  /// Reads what pkl_dat has written. Throws: error when the file cannot be read, type_error or protocol_error when it
  /// holds something else.
  template <class T>
  void unpkl_dat(const str_type& path, T& data) {
    read_object(path, sink(data));
  }

 private:
  void visit_part(const list_type<str_type>& files, std::size_t part, std::size_t parts,
                  const std::function<void(str_type&&)>& visit);
  list_type<str_type> load_all(const list_type<str_type>& files);
  list_type<str_type> standard_input(const list_type<str_type>& files);
  void load_parts(const list_type<str_type>& files, const std::function<void(list_type<str_type>&)>& visit);
  void dump(const str_type& filename, const str_type& ending, bool append, bool merge,
            const std::function<bool(str_type&)>& next);
  void merge_files(const list_type<str_type>& files, const str_type& prefix, bool append);
  str_type write_object(const str_type& prefix, const value_view& value);
  static void read_object(const str_type& path, value_sink to);

  str_type output_;
  std::shared_ptr<session> session_;
  std::size_t part_ = 0;  // number of this algorithm in the worker's part of a checkpoint
  bool restored_ = false;
  bool one_output_file_ = false;
  int first_iteration_ = 0;
  std::int64_t last_report_ms_ = -1;
};

}  // namespace paracel
