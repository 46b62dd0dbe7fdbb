// SPDX-License-Identifier: BSD-3-Clause
//
// Every operation of a queue with every type and fold, of all tasks and of groups, on random vectors whose folds depend
// on the order; prints a hash of all result bits.
//
//   queue_folds STEPS
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <paracel/com_queue.hpp>
#include <paracel/run.hpp>

namespace {

using paracel::com_context;
using paracel::reduce_op;

template <class T>
std::vector<T> drawn(std::mt19937_64& dice, std::size_t length) {
  std::vector<T> v(length);
  for (auto& x : v) {
    const auto bits = dice();
    if constexpr (std::is_floating_point_v<T>)
      x = static_cast<T>(std::ldexp(static_cast<double>(bits >> 11U) - 4e15, static_cast<int>(bits % 40) - 60));
    else x = static_cast<T>(bits);
  }
  return v;
}

template <class T>
void mix(std::uint64_t& into, std::span<const T> values) {
  for (const T x : values) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &x, sizeof x);
    into = (into ^ bits) * 0x100000001b3ULL + (into >> 31U);
  }
}

template <class T>
T halved_and_added(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return a * static_cast<T>(0.5) + b;
  else return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) * 3U + static_cast<std::make_unsigned_t<T>>(b));
}

/// All operations of a queue on vectors of one type, and those of a group.
template <class T>
void add_all(paracel::com_queue& q, const std::string& type, const paracel::Comm& group) {
  const auto of = [type](const char* name) { return name + type; };
  q.add([of](com_context& c) {
    const auto step = static_cast<std::uint64_t>(c.step_no());
    std::mt19937_64 shared(step), own(step * 100 + c.task_id());
    const std::size_t most = c.step_no() % 3 == 0 ? 60'000 : 300;
    const auto length = static_cast<std::size_t>(shared() % most);
    for (const char* name : {"sum.", "max.", "min.", "own.", "part.", "cut."})
      c.put_obj(of(name), drawn<T>(own, length));
    c.put_obj(of("n."), static_cast<std::int64_t>(length / 3));
    c.put_obj(of("many."), drawn<T>(own, own() % most));
    c.put_obj(of("root."), drawn<T>(own, own() % 50));
    c.put_obj(of("object."), drawn<T>(own, 3));
  });
  q.add(paracel::all_reduce(of("sum."))).add(paracel::all_reduce(of("max."), reduce_op::max));
  q.add(paracel::all_reduce(of("min."), reduce_op::min)).add(paracel::all_reduce(of("cut."), of("n.")));
  q.add(paracel::all_reduce<T>(of("own."), [](std::span<T> into, std::span<const T> from) {
    for (std::size_t i = 0; i < into.size(); ++i) into[i] = halved_and_added(into[i], from[i]);
  }));
  q.add(paracel::reduce_scatter(of("part."))).add(paracel::all_gather(of("part.")));
  q.add(paracel::all_gather(of("many."))).add(paracel::broadcast(of("root."), 0));
  q.add(paracel::all_reduce_object<std::vector<T>>(of("object."), [](std::vector<T>& into, const std::vector<T>& from) {
    into.insert(into.end(), from.rbegin(), from.rend());
  }));
  q.add([of, group](com_context& c) {
    std::mt19937_64 own(c.task_id() + 7);
    auto values = drawn<T>(own, 2'000);
    paracel::collectives all(group);
    all.all_reduce(std::span(values));
    auto& digest = c.get_obj<std::int64_t>("digest");
    auto bits = static_cast<std::uint64_t>(digest);
    mix<T>(bits, values);
    for (const char* name : {"sum.", "max.", "min.", "own.", "part.", "many.", "root.", "object."})
      mix<T>(bits, c.get_obj<std::vector<T>>(of(name)));
    mix<T>(bits, std::span<const T>(c.get_obj<std::vector<T>>(of("cut."))).first(c.get_obj<std::int64_t>(of("n."))));
    digest = static_cast<std::int64_t>(bits);
  });
}

}  // namespace

int main(int argc, char** argv) {
  return paracel::run(argc, argv, [&] {
    if (argc < 2) throw paracel::usage_error("queue_folds STEPS");
    paracel::paralg job{paracel::Comm()};
    const auto group = job.get_comm().split(job.get_worker_id() < 3 ? 0 : 1);
    paracel::com_queue q(job);
    q.add([](com_context& c) {
      if (c.step_no() == 1) c.put_obj("digest", std::int64_t{0});
    });
    add_all<double>(q, "f64", group);
    add_all<float>(q, "f32", group);
    add_all<std::int32_t>(q, "i32", group);
    add_all<std::int64_t>(q, "i64", group);
    q.add(paracel::all_reduce("digest"));
    q.set_max_iter(std::atoi(argv[1]));
    q.close_with([](com_context& c) { return c.get_obj<std::int64_t>("digest"); });
    const auto digest = q.exec<std::int64_t>();
    if (job.get_worker_id() == 0) std::printf("%016llx\n", static_cast<unsigned long long>(digest));
  });
}
