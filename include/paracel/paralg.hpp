// SPDX-License-Identifier: BSD-3-Clause
//
// The base class of every algorithm. A subclass reads, updates and writes parameters by key as if they were its own
// variables; they are stored in the servers, sharded by key. `iter_commit` marks the end of an iteration.
//
// One rule says what a read may miss, with the staleness s (limit_s): a worker that has finished c iterations may read
// while c - slowest <= s; what it then reads contains at least all updates of every worker's first c - s iterations,
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

#include <paracel/comm.hpp>
#include <paracel/compat/old_calls.hpp>
#include <paracel/consistency.hpp>
#include <paracel/detail/saved_state.hpp>
#include <paracel/error.hpp>
#include <paracel/graph_loading.hpp>
#include <paracel/job_control.hpp>
#include <paracel/main_env.hpp>
#include <paracel/samples.hpp>
#include <paracel/text_output.hpp>
#include <paracel/types.hpp>

namespace paracel {

class input_set;
class parasrv;
class resumable_loop;

/// One progress report of a run.
struct progress_report {
  int round = 0;
  int rounds = 0;
  double objective = 0;           ///< the value being monitored,
  str_type metric = "objective";  ///< and its name
};

/// Base class of algorithms: Paracel's `paralg`.
///
/// Thread-safety: none; use it on the thread that constructed it.
/// Throws: every call that talks to a server may throw job_error (the job ended: the first cause), network_error (says
/// whether the request may have been applied), plugin_error (an update function failed; the value is unchanged) and
/// type_error.
class paralg : public graph_loading, public old_calls {
 public:
  /// Joins the job. `server_info` is what prun.py passes as --server_info; empty: what main_env found.
  /// `output`: folder of results, created if missing. This job owns it until the process ends: another job that would
  /// write there is refused, and what this program's last run wrote there is removed (its results only: not files that
  /// were appended to, objects of pkl_dat, or files of other programs). Blocks: until every server and worker has
  /// joined.
  paralg(const str_type& server_info, Comm comm, const str_type& output, int rounds, const consistency& c);
  /// The form of Paracel 0.3. `ssp_switch`: SSP with the staleness `limit_s` (0 included); false is ASP, and `limit_s`
  /// is kept for a later set_consistency(ssp).
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

  // ---- input. Collectives, except paracel_loadall and its sequential form: worker 0 lists the files and their sizes,
  // and the others read exactly those. Throws: data_error on every worker when a file cannot be read, or has changed
  // since worker 0 listed it (data appended since then is ignored). Blocks: a collective.

  /// Lines of this worker's part of the input: a file, a list of files, a folder, a glob pattern, or "-", standard
  /// input, all of which goes to worker 0. A file compressed by gzip or zstd is read whole by one worker.
  template <class T>
  list_type<str_type> paracel_load(const T& files) {
    list_type<str_type> lines;
    visit_part(list_of(files), get_worker_id(), get_worker_size(),
               [&](str_type&& line) { lines.push_back(std::move(line)); });
    return lines;
  }
  using old_calls::paracel_load;
  /// All lines of the input. A worker may call it alone, as programs for 0.3 do: each reads the files as it finds them.
  /// For standard input, which worker 0 relays, it is a collective like the others.
  template <class T>
  list_type<str_type> paracel_loadall(const T& files) {
    return load_all(list_of(files));
  }
  /// `func(lines)` with every worker's part of the input, one part at a time: paracel_loadall without holding
  /// all lines in memory at once.
  template <class T, class F>
  void paracel_sequential_loadall(const T& files, F&& func) {
    load_parts(list_of(files), [&](list_type<str_type>& lines) { func(lines); });
  }
  /// `func(line)` with each line of this worker's part of the input; only a small buffer of it is kept in memory.
  template <class T, class F>
  void paracel_load_handle(const T& files, F&& func) {
    visit_part(list_of(files), get_worker_id(), get_worker_size(), [&](str_type&& line) { func(line); });
  }
  using old_calls::paracel_load_handle;

  // ---- clock, workers -----------------------------------------------------------------------------------------------

  /// On: deltas of paracel_update (functions declared additive, numbers) are summed in this worker, key by key, and
  /// sent at the end of the iteration, many keys per request; earlier only when their future is queried, or when a read
  /// or another call for the key goes to the server. Off: every update is sent at once. Under SSP it is on, because
  /// no worker may rely on seeing an update before its iteration ends; under ASP it is off unless switched on; under
  /// BSP always off.
  void set_combining(bool on);

  /// On: under SSP, when the slowest worker finishes an iteration, the servers push to this worker the changed values
  /// of the keys that it reads through its cache, so that a later read hits the cache. It costs the traffic of changes
  /// that are then not read. Off unless switched on; see tool/bench/README.md.
  void set_push(bool on);
  /// Switches push on, and reads these keys into the cache. Keys that are read later are added implicitly; a key that
  /// is not read for 8 iterations is dropped. Throws: key_error when one does not exist.
  void paracel_subscribe(const list_type<str_type>& keys);

  /// The end of an iteration: waits until its updates are acknowledged and ticks the clock, under every consistency.
  /// Under BSP they take effect when every worker has committed; those with no commit after them are lost, with a
  /// warning. When the job makes a checkpoint it also calls checkpoint_state, and waits until the whole checkpoint is
  /// on disk. Cost: one round trip. Throws: the error of an update whose future's get() was not called.
  void iter_commit();

  // ---- checkpoints (doc/checkpoints.md) ----------------------------------------------------------------------------
  //
  //   if (!resumed()) write_initial_parameters();
  //   for (int round = first_iteration(); round < rounds; ++round) { ...; iter_commit(); }

  /// True after resuming from a checkpoint, or as a replacement of a dead worker: the parameters are in the servers.
  [[nodiscard]] bool resumed() const;
  /// How many iterations this algorithm had committed then; 0 otherwise. The first call passes restore_state what
  /// checkpoint_state saved. A worker is replaceable if it calls this at the start of its loop (doc/workers.md).
  int first_iteration();
  /// Saves what this worker needs, in addition to the parameters and its data, to resume after the iteration just
  /// committed. Called inside iter_commit. If it throws, the checkpoint fails, and nothing else.
  virtual void checkpoint_state(saved_state& /*to*/) {}
  /// Called inside first_iteration.
  virtual void restore_state(const saved_states& /*from*/) {}

  /// After n commits reads go to the servers, not to the cache. Default: `rounds`.
  void set_total_iters(int n);
  /// asp, ssp (with the staleness of the constructor) or bsp. Call it on every worker before the first read or update.
  void set_consistency(consistency_model model);
  [[nodiscard]] consistency_model get_consistency() const;
  /// Another consistency for the keys and tables whose names begin with `prefix`; the longest matching prefix wins. All
  /// of them share this worker's clock: a read waits for other workers only as far as its own key demands. A scan is as
  /// strict as the strictest key it may see; any other call on several keys needs them to have the same consistency
  /// (config_error). Call it on every worker, before the first read or update of such a key and before any key set is
  /// prepared. Cost: a comparison per prefix in each call. Throws: config_error for an empty prefix, or when it is
  /// called too late.
  void set_consistency(const str_type& prefix, const consistency& c);
  /// The consistency of a key, or of the table with this name.
  [[nodiscard]] consistency get_consistency(const str_type& key) const;
  /// Iterations that this worker was ahead of the slowest known worker at its last read.
  [[nodiscard]] std::uint32_t last_staleness() const;

  /// A barrier of all workers: when it returns, all updates made before it are in the servers and visible to all; under
  /// BSP, those made before the last iter_commit of the slowest worker, because the barrier ends no iteration. Throws:
  /// the error of an update whose future's get() was not called, or of a BSP fold.
  void paracel_sync();

  [[nodiscard]] std::size_t get_worker_id() const { return comm_.get_rank(); }
  [[nodiscard]] std::size_t get_worker_size() const { return comm_.get_size(); }
  [[nodiscard]] std::size_t get_server_size() const;
  [[nodiscard]] Comm get_comm() const { return comm_; }
  [[nodiscard]] const str_type& get_output() const { return output_; }
  /// For what the framework builds on it (array.hpp, table.hpp); its header is not installed.
  [[nodiscard]] parasrv& servers() { return *servers_; }

  /// Whether an iteration that is not committed makes a difference: the job writes checkpoints, workers can be
  /// replaced, or reads depend on the clock.
  [[nodiscard]] bool commits_matter() const;

  /// The servers and workers of the job as the scheduler sees them now, servers first; empty in a job of one process.
  /// Any worker may call it. Cost: a round trip to the scheduler. Throws: error when the job has ended.
  [[nodiscard]] list_type<job_node> paracel_nodes();
  /// Those of them that have died, or have not sent a heartbeat for more than `silent` seconds.
  [[nodiscard]] list_type<job_node> paracel_dead_nodes(double silent = 1e300);

  // ---- commands (doc/driver.md): functions that other workers, or `prun.py tell`, call in this one. They run on this
  // thread, never inside another call's work, at these points:
  //
  //   iter_commit (also of a loop)     at its end
  //   paracel_sync, Comm::synchronize  while it waits; paracel_sync also before and after. Not under MPI's barrier.
  //   paracel_tell                     while it waits
  //   paracel_take_commands            always
  //
  // A function may do whatever the program could do at that point, except: no paracel_tell, and while its worker waits
  // in a barrier no collective and nothing else that asks the scheduler (an error says so). Calls that wait for the
  // parameters or for the clock run no commands.

  /// Runs `f(body)` for each command of this name that is sent to this worker, until this paralg is destroyed; what it
  /// returns or throws is the answer. Texts are UTF-8, at most 64 KiB. Throws: config_error when the name is taken.
  /// Cost: a round trip to the scheduler for the first one in a process; then one non-blocking receive at each of these
  /// points.
  void paracel_on_command(const str_type& name, std::function<str_type(const str_type&)> f);
  /// Sends a command, and returns the answers by rank or slot. Each worker runs it at most once, and those of one
  /// sender in order. For a recipient that died, does not know the command, threw, or has not answered within `seconds`
  /// (up to 86,400) the answer is not `ok` and says why. Servers know one command, stats; user code runs in servers
  /// only as update functions. Blocks: until all have answered, at most `seconds`. Throws: error when no recipient has
  /// that number.
  list_type<command_answer> paracel_tell(const command_target& to, const str_type& name, const str_type& body = "",
                                         double seconds = 60);
  /// Runs the commands that have arrived, and the function of paracel_on_change; waits at most `seconds` for the first
  /// of them. Returns: how many ran.
  std::size_t paracel_take_commands(double seconds = 0);
  /// Runs `f(node)`, at the same points, when a server or a worker has died (`is_dead`, with the cause), another
  /// process has taken its place ("joining", "catching up") or serves ("up"), or a server enters or leaves. Every
  /// change since this process joined is reported once, in order.
  void paracel_on_change(std::function<void(const job_node&)> f);

  /// Rank 0's progress, shown by prun.py; a no-op on other ranks. Sends at most ten a second, and always the last.
  void report_progress(const progress_report& report);
  /// Records a number of this run, e.g. its loss: rank 0 writes {"round", name, "seconds" since it joined} as a line of
  /// <output>/metrics.jsonl (only if there is an output folder; nan and infinity become null), and reports it as
  /// progress; a no-op on other ranks. `round`: 0 means the iterations that this worker has committed. Names:
  /// doc/metrics.md. Functions that compute metrics: metrics.hpp. Throws: config_error when the name is empty or that
  /// of another member; error when the file cannot be written at first. Cost: a write to the file; no message more than
  /// ten times a second.
  void report_metric(const str_type& name, double value, int round = 0);

  // ---- results: files below the output folder ----------------------------------------------------------------------
  //
  // Numbers are written at full precision. Files are written atomically; one that is appended to keeps its old contents
  // when that fails. Throws: data_error that names the file, also when its path leaves the output folder. Cost: a few
  // megabytes of memory for text, whatever is written or merged.

  /// On: paracel_dump_vector, _dict, _prob_mtx and _pieces write one file of all workers instead of one per worker.
  /// They are then collectives: every worker calls them, in the same order, with empty data if it has none. A file is
  /// the concatenation of what the workers would have written, in rank order, and exists when the call returns, on
  /// every worker. Its name is that of result_name, with `merge` <filename>merge. Results that only worker 0 has go to
  /// a path of paracel_result instead. Initially on where the config has "output_files": 1 and the schema has that key
  /// (config_schema::add_output_files); otherwise off, and each call concerns only the worker that makes it. Must be
  /// the same on every worker. Throws (the calls): on every worker, what one of them threw; no part of the file is
  /// left, and an existing file stays. Cost: each byte is sent once, to worker 0; memory for some pieces of 4 MiB a
  /// worker, whatever is written.
  void set_one_output_file(bool on) { one_output_file_ = on; }
  [[nodiscard]] bool one_output_file() const { return one_output_file_; }
  /// The name of a result of this worker below the output folder: <filename><rank><ending>; with one file of all
  /// workers <filename><ending> without the _ at the end of `filename`, and with the ending .txt if it has none.
  [[nodiscard]] str_type result_name(const str_type& filename, const str_type& ending = "") const;

  /// <output>/<name>, the path of a result that the caller writes itself: this program's next run with this output
  /// folder removes it.
  str_type paracel_result(const str_type& name);

  /// Writes `data` to <output>/<filename><rank>, elements joined by `sep`.
  /// `append_flag`: appends. `merge` (every worker must call): rank 0 then concatenates what all ranks have just
  /// written, in rank order, into <output>/<filename>merge, which exists when its own call returns.
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
  /// The line that it writes, without the line end.
  template <class V>
  [[nodiscard]] static str_type dump_line_as_vector(const list_type<V>& data, const str_type& sep = ",") {
    str_type line;
    for (std::size_t i = 0; i < data.size(); ++i) {
      if (i > 0) line += sep;
      append_text(line, data[i]);
    }
    return line;
  }
  using old_calls::dump_line_as_vector;
  /// Only the elements whose index has a name in `id_map`, as name:element.
  template <class V>
  void paracel_dump_vector(const list_type<V>& data, const dict_type<std::size_t, str_type>& id_map,
                           const str_type& filename = "result_", const str_type& sep = ",", bool append_flag = false,
                           bool merge = false) {
    list_type<std::pair<str_type, V>> named;
    for (std::size_t i = 0; i < data.size(); ++i)
      if (const auto name = id_map.find(i); name != id_map.end()) named.emplace_back(name->second, data[i]);
    paracel_dump_vector(named, filename, sep, append_flag, merge);
  }

  /// Writes a line per key, in key order: key, a tab (or `sep`), value. The elements of a list are separated by |,
  /// pairs by : and triples by commas. Otherwise as paracel_dump_vector.
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
  template <class K, class V>  // otherwise a literal would become a bool
  void paracel_dump_dict(const dict_type<K, V>& data, const str_type& filename, const char* sep,
                         bool append_flag = false, bool merge = false) {
    paracel_dump_dict(data, filename, str_type(sep), append_flag, merge);
  }
  /// The same without rows that have no elements.
  void paracel_dump_prob_mtx(const dict_type<str_type, list_type<std::pair<str_type, double>>>& data,
                             const str_type& filename = "result_", bool append_flag = false, bool merge = false) {
    auto rows = data;
    std::erase_if(rows, [](const auto& row) { return row.second.empty(); });
    paracel_dump_dict(rows, filename, append_flag, merge);
  }

  /// Writes a result that does not fit in memory to the file that result_name(filename, ending) names: `next` appends
  /// a piece of it to its argument at each call, or returns false at the end.
  void paracel_dump_pieces(const str_type& filename, const std::function<bool(str_type&)>& next,
                           const str_type& ending = "") {
    dump(filename, ending, false, false, next);
  }

  /// Concatenates files (a file, a list, a folder or a glob pattern; sorted) into <output>/<prefix>merge, which is
  /// skipped as an input. Concerns only the calling worker.
  template <class T>
  void files_merge(const T& files, const str_type& prefix = "result_", bool append_flag = false) {
    merge_files(expand(files), prefix, append_flag);
  }
  /// Folds every worker's `data` with func(received, accumulator) in rank order; rank `root` gets the result, the
  /// others a default T. Every worker must call it.
  template <class T, class F>
  T data_merge(T& data, F&& func, Comm& comm, int root = 0) {
    return comm.treereduce(data, std::forward<F>(func), static_cast<std::size_t>(root));
  }
  template <class T, class F>
  T data_merge(T& data, F&& func, int root = 0) {
    return data_merge(data, std::forward<F>(func), comm_, root);
  }

  /// Writes anything that can be a value to <output>/<prefix><rank>.pkl and returns that path. The file is written
  /// atomically.
  template <class T>
  str_type pkl_dat(const T& data, const str_type& prefix = "tmp") {
    const encoded<T> e(data);
    return write_object(prefix, e.view());
  }
  /// Reads a file of pkl_dat. Throws: error when it cannot be read, type_error or protocol_error when it
  /// holds something else.
  template <class T>
  void unpkl_dat(const str_type& path, T& data) {
    read_object(path, sink(data));
  }

 private:
  friend class resumable_loop;
  static const std::string loop_prefix;
  /// Begins a loop, after first_iteration. Returns: the argument of commit_loop.
  std::size_t begin_loop();
  void commit_loop(std::size_t level);
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
  std::size_t part_ = 0;  // index of this algorithm in the worker's part of a checkpoint
  bool restored_ = false;
  bool one_output_file_ = false;
  int first_iteration_ = 0;
  // Loops (resumable_loop): the running ones, outermost first; and the saved state of others, from the checkpoint that
  // was resumed and since then.
  std::vector<resumable_loop*> open_loops_;
  std::size_t loops_ = 0;
  saved_state loop_state_;
  bool loop_state_is_own_ = true;  // saved by as many workers as now
  std::int64_t last_report_ms_ = -1;
};

}  // namespace paracel
