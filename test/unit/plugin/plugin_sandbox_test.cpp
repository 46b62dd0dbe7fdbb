// SPDX-License-Identifier: BSD-3-Clause
#include "server/plugin/plugin_sandbox.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <span>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <paracel/error.hpp>

#include "server/plugin/plugin_registry.hpp"
#include "server/plugin/sandbox_memory.hpp"
#include "test/support/paths.hpp"
#include "test/support/sanitized.hpp"

namespace paracel::srv {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
namespace fs = std::filesystem;

sandbox_options options() {
  sandbox_options o;
  o.program = test::program_folder() + "/start_sandbox";
  o.max_value_bytes = std::size_t{8} << 20;
  o.memory_bytes = std::size_t{1} << 30;
  return o;
}

/// A registry with a sandbox, and one without.
struct both {
  explicit both(sandbox_options o = options()) : sandboxed({test::plugin_folder()}, std::move(o)) {}
  plugin_registry sandboxed;
  plugin_registry own{{test::plugin_folder()}};
};

template <class V>
struct result {
  V value{};
  std::string error;
  abi::outcome outcome = abi::ok;
  friend bool operator==(const result&, const result&) = default;
};

template <class V, class D>
result<V> run(const loaded_update& u, const V& value, const D& delta) {
  result<V> r;
  std::vector<std::byte> out;
  const encoded<V> v(value);
  const encoded<D> d(delta);
  const auto tag = apply(u, v.view(), d.view(), out, r.error, &r.outcome);
  if (tag != value_tag::none) r.value = decode<V>({tag, out});
  return r;
}

double added(const loaded_update& u, double value, double delta) {
  const auto r = run(u, value, delta);
  EXPECT_EQ(r.error, "");
  return r.value;
}

std::string why(const loaded_update& u, double value, double delta) {
  const auto r = run(u, value, delta);
  EXPECT_EQ(r.outcome, abi::failed);
  return r.error;
}

/// The children of this process.
std::vector<pid_t> children() {
  std::vector<pid_t> all;
  for (const auto& task : fs::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "children");
    for (pid_t p = 0; file >> p;) all.push_back(p);
  }
  return all;
}

TEST(PluginSandbox, GivesTheResultsThatAFunctionGivesInTheServer) {
  both of;
  const auto same = [&](const char* name, const auto& value, const auto& delta) {
    const auto expected = run(of.own.load_update("good_updates.so", name), value, delta);
    EXPECT_EQ(run(of.sandboxed.load_update("good_updates.so", name), value, delta), expected) << name;
    return expected.value;
  };
  EXPECT_EQ(same("add_lists", std::vector<double>{1, 2}, std::vector<double>{3, 4}), (std::vector<double>{4, 6}));
  same("add_lists", std::vector<double>{1, 2}, std::vector<double>{3});  // throws
  same("append_list", std::vector<double>{1, 2}, std::vector<double>{3, 4, 5});
  same("append_list", std::vector<double>{}, std::vector<double>{});
  same("count_words", std::map<std::string, int>{{"a", 1}}, std::pair<std::string, int>{"b", 2});
  same("count_words", 1.5, 2.5);  // a type that it does not accept
  same("half_step", std::vector<float>{1, 2}, std::vector<float>{1, 1});
  const auto& mean = of.sandboxed.load_update("good_updates.so", "running_mean");
  std::vector<std::byte> out;
  std::string error;
  const encoded<double> five(5.0);
  const auto tag = apply_to_missing(mean, five.view(), out, error);
  EXPECT_EQ(decode<std::vector<double>>({tag, out}), (std::vector<double>{5, 1})) << error;
  for (const char* name : {"throws_text", "throws_number", "returns_malformed", "returns_nothing"}) {
    EXPECT_EQ(run(of.sandboxed.load_update("failing_updates.so", name), 1.0, 2.0),
              run(of.own.load_update("failing_updates.so", name), 1.0, 2.0));
  }
  for (const char* name : {"begins_with_x", "is_positive"}) {
    const auto& here = of.own.load_filter("good_updates.so", name);
    const auto& there = of.sandboxed.load_filter("good_updates.so", name);
    for (const double value : {-1.0, 1.0}) {
      for (const char* key : {"x1", "y1"})
        EXPECT_EQ(test(there, key, encoded(value).view(), error), test(here, key, encoded(value).view(), error));
    }
  }
  EXPECT_EQ(of.sandboxed.sandbox()->lost(), 0U);
}

TEST(PluginSandbox, IdsAndRefusalsAreThoseOfTheServer) {
  both of;
  EXPECT_EQ(of.sandboxed.load_update("good_updates.so", "multiply").id,
            of.own.load_update("good_updates.so", "multiply").id);
  EXPECT_EQ(of.sandboxed.load_filter("good_updates.so", "is_positive").id,
            of.own.load_filter("good_updates.so", "is_positive").id);
  const auto refusal = [](plugin_registry& r, const char* plugin, const char* symbol) -> std::string {
    try {
      (void)r.load_update(plugin, symbol);
      return "loaded";
    } catch (const plugin_error& e) {
      return e.what();
    }
  };
  for (const auto& [plugin, symbol] :
       std::vector<std::pair<const char*, const char*>>{{"good_updates.so", "nothing"},
                                                        {"good_updates.so", ""},
                                                        {"good_updates.so", "is_positive"},
                                                        {"no_updates.so", "f"},
                                                        {"wrong_abi.so", ""},
                                                        {"needs_missing.so", "f"},
                                                        {"nowhere.so", "f"}}) {
    EXPECT_EQ(refusal(of.sandboxed, plugin, symbol), refusal(of.own, plugin, symbol));
  }
}

TEST(PluginSandbox, OptimizersKeepTheirState) {
  both of;
  for (auto* r : {&of.own, &of.sandboxed}) {
    const auto& u = r->load_update("own_optimizers.so", "touchy_steps");
    std::vector<double> value{1, 2}, state{0, 0};
    std::string error;
    const auto step = [&](std::vector<double> gradient) {
      return apply_step(u, value_tag::f64_array, std::as_writable_bytes(std::span(value)),
                        std::as_writable_bytes(std::span(state)), 0, encoded(gradient).view(), error);
    };
    EXPECT_TRUE(step({1, 1}));
    EXPECT_TRUE(step({1, 1}));
    EXPECT_EQ(value, (std::vector<double>{4, 5}));
    EXPECT_EQ(state, (std::vector<double>{2, 2}));
    EXPECT_FALSE(step({1, -1}));
    EXPECT_THAT(error, HasSubstr("a negative gradient"));
    EXPECT_EQ(value, (std::vector<double>{4, 5}));
    EXPECT_EQ(state, (std::vector<double>{2, 2}));
  }
  const auto& counting = of.sandboxed.load_update("own_optimizers.so", std::string("count_steps\0unit=2", 18));
  std::vector<float> value{0}, state{0};
  const std::vector<float> one{1};
  std::string error;
  EXPECT_TRUE(apply_step(counting, value_tag::f32_array, std::as_writable_bytes(std::span(value)),
                         std::as_writable_bytes(std::span(state)), 3, encoded(one).view(), error));
  EXPECT_EQ(value.front(), 6);
}

TEST(PluginSandbox, EveryDeathFailsOneCallAndNamesTheFunction) {
  auto o = options();
  o.timeouts = 500ms;
  both of(o);
  auto& s = *of.sandboxed.sandbox();
  std::uint64_t lost = 0;
  for (const auto& [name, how] :
       std::vector<std::pair<std::string, std::string>>{{"segv", "ended its sandbox: SIGSEGV"},
                                                        {"overflow", "ended its sandbox: SIGSEGV"},
                                                        {"abort", "ended its sandbox: SIGABRT"},
                                                        {"exit", "ended its sandbox: exit(3)"},
                                                        {"fpe", "ended its sandbox: SIGFPE"},
                                                        {"loop", "ran for longer than 0.5 s (--function-timeout)"},
                                                        {"hang", "ran for longer than 0.5 s (--function-timeout)"}}) {
    if (test::sanitized && name == "overflow") continue;  // a sanitizer reports it instead of raising a signal
    const auto& u = of.sandboxed.load_update("deadly_updates.so", "deadly_" + name);
    EXPECT_EQ(added(u, 1, 1), 2);
    const auto text = why(u, 1, -1);
    EXPECT_THAT(text, HasSubstr("deadly_updates.so:deadly_" + name));
    if (!test::sanitized || how.starts_with("ran")) {
      EXPECT_THAT(text, HasSubstr(how));
    }
    EXPECT_EQ(s.lost(), ++lost);
    EXPECT_EQ(added(u, 1, 1), 2);
  }
  EXPECT_EQ(s.started(), lost + 1);
}

TEST(PluginSandbox, TwentyGigabytesAreRefusedWhereTheLimitIs) {
  if (test::sanitized) GTEST_SKIP() << "a sanitizer reserves more addresses than any limit allows";
  auto o = options();
  o.memory_bytes = std::size_t{128} << 20;
  o.timeouts = 100'000ms;
  both of(o);
  const auto& u = of.sandboxed.load_update("deadly_updates.so", "deadly_allocation");
  EXPECT_THAT(why(u, 1, -1), HasSubstr("std::bad_alloc: the limit of its sandbox is 128M (--sandbox-memory)"));
  EXPECT_EQ(added(u, 1, 1), 2);
  EXPECT_EQ(of.sandboxed.sandbox()->lost(), 0U);
}

TEST(PluginSandbox, AFunctionMayHaveATimeLimitOfItsOwn) {
  auto o = options();
  o.timeouts = 60000ms;
  o.timeouts.of_function["libdeadly_updates.so:deadly_loop"] = 300ms;
  both of(o);
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_THAT(why(of.sandboxed.load_update("deadly_updates.so", "deadly_loop"), 1, -1),
              HasSubstr("ran for longer than 0.3 s"));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 30s);
}

TEST(PluginSandbox, AnInPlaceUpdateThatDiesLeavesTheValue) {
  both of;
  const auto& u = of.sandboxed.load_update("deadly_updates.so", "deadly_in_place");
  EXPECT_FALSE(cannot_fail(u, encoded(1.0).view(), encoded(1.0).view()));
  std::vector<double> value{1, 2, 3};
  std::string error;
  const auto update = [&](const std::vector<double>& delta) {
    return apply_in_place(u, value_tag::f64_array, std::as_writable_bytes(std::span(value)), encoded(delta).view(),
                          error);
  };
  EXPECT_FALSE(update({1, 1, -1}));
  EXPECT_EQ(value, (std::vector<double>{1, 2, 3}));
  EXPECT_TRUE(update({1, 1, 1}));
  EXPECT_EQ(value, (std::vector<double>{2, 3, 4}));
}

TEST(PluginSandbox, AFilterThatDiesNamesItself) {
  both of;
  const auto& f = of.sandboxed.load_filter("deadly_updates.so", "deadly_filter_segv");
  std::string error;
  EXPECT_EQ(test(f, "deadly 0", {}, error), true);
  EXPECT_EQ(test(f, "deadly 1", {}, error), std::nullopt);
  EXPECT_THAT(error, HasSubstr("deadly_updates.so:deadly_filter_segv: ended its sandbox"));
  EXPECT_EQ(test(f, "deadly 2", {}, error), true);
}

TEST(PluginSandbox, OneThatDiesWhenItIsLoadedIsRefused) {
  both of;
  try {
    (void)of.sandboxed.load_update("dies_when_loaded.so", "f");
    FAIL();
  } catch (const plugin_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("dies_when_loaded.so cannot be loaded: loading it ended its sandbox"));
  }
  EXPECT_EQ(added(of.sandboxed.load_update("deadly_updates.so", "deadly_segv"), 1, 1), 2);
}

TEST(PluginSandbox, ValuesOfAnySizeGoThroughAndNoLargerOnes) {
  both of;
  const auto& u = of.sandboxed.load_update("good_updates.so", "append_list");
  std::vector<double> value(1'000'000);
  std::iota(value.begin(), value.end(), 0.0);
  auto expected = value;
  expected.insert(expected.end(), value.begin(), value.end());
  EXPECT_EQ(run(u, value, value).value, expected);
  EXPECT_EQ(run(u, std::vector<double>{1}, std::vector<double>{2}).value, (std::vector<double>{1, 2}));
  const std::vector<double> huge(8'000'000);
  EXPECT_THAT(run(u, huge, huge).error, HasSubstr("do not fit into the memory of its sandbox"));
}

TEST(PluginSandbox, AProcessThatEndsBetweenTwoCallsIsReplacedUnnoticed) {
  both of;
  const auto& u = of.sandboxed.load_update("deadly_updates.so", "deadly_segv");
  EXPECT_EQ(added(u, 1, 1), 2);
  const auto all = children();
  ASSERT_EQ(all.size(), 1U);
  kill(all.front(), SIGKILL);
  siginfo_t about{};
  waitid(P_PID, static_cast<id_t>(all.front()), &about, WEXITED | WNOWAIT);
  EXPECT_EQ(added(u, 2, 1), 3);
  EXPECT_EQ(of.sandboxed.sandbox()->started(), 2U);
}

TEST(PluginSandbox, OneThatIsKilledAtAnyMomentHasChangedTheValueExactlyIfItsCallSucceeded) {
  both of;
  const auto& u = of.sandboxed.load_update("deadly_updates", "deadly_in_place");
  const encoded<double> one(1.0);
  std::array<double, 1> value{};
  double succeeded = 0;
  std::atomic<bool> over{false};
  std::thread killer([&] {
    for (unsigned i = 0; !over; ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(i * 7919 % 3000));
      for (const auto p : children()) kill(p, SIGKILL);
    }
  });
  const auto end = std::chrono::steady_clock::now() + 2s;
  while (std::chrono::steady_clock::now() < end || of.sandboxed.sandbox()->lost() < 20) {
    std::string error;
    const bool done = apply_in_place(u, value_tag::f64, std::as_writable_bytes(std::span(value)), one.view(), error);
    if (done) ++succeeded;
    EXPECT_EQ(value[0], succeeded) << error;
    if (value[0] != succeeded) break;
  }
  over = true;
  killer.join();
}

TEST(PluginSandbox, EveryThreadHasAProcessWhichEndsWithTheSandbox) {
  {
    both of;
    const auto& u = of.sandboxed.load_update("deadly_updates.so", "deadly_segv");
    for (int i = 0; i < 3; ++i) std::thread([&] { EXPECT_EQ(added(u, 1, 1), 2); }).join();
    EXPECT_EQ(added(u, 1, 1), 2);
    EXPECT_GE(of.sandboxed.sandbox()->started(), 2U);
    EXPECT_FALSE(children().empty());
  }
  EXPECT_TRUE(children().empty());
}

TEST(PluginSandbox, ItsProcessHasNoneOfTheServersDescriptors) {
  std::ifstream kept("/proc/self/status");
  both of;
  EXPECT_EQ(added(of.sandboxed.load_update("deadly_updates.so", "count_descriptors"), 0, 0), 3);
}

TEST(PluginSandbox, APlugInThatChangesIsNotLoadedAgain) {
  const auto folder = fs::temp_directory_path() / ("sandbox-" + std::to_string(getpid()));
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::owner_all);
  const auto library = folder / "libchanging.so";
  const auto copy = [&](const char* from) {
    fs::copy_file(fs::path(test::plugin_folder()) / from, library, fs::copy_options::overwrite_existing);
    ::chmod(library.c_str(), 0700);
  };
  copy("libdeadly_updates.so");
  plugin_registry registry({folder.string()}, options());
  const auto& u = registry.load_update("libchanging.so", "deadly_segv");
  EXPECT_EQ(added(u, 1, 1), 2);
  EXPECT_THAT(why(u, 1, -1), HasSubstr("ended its sandbox"));
  fs::remove(library);
  copy("libgood_updates.so");
  EXPECT_THAT(why(u, 1, 1), HasSubstr("has changed since it was loaded"));
  fs::remove_all(folder);
}

TEST(PluginSandbox, AMissingProgramFailsWithTheReason) {
  auto o = options();
  o.program = "/nowhere/start_sandbox";
  both of(o);
  try {
    (void)of.sandboxed.load_update("good_updates.so", "multiply");
    FAIL();
  } catch (const plugin_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("the sandbox cannot be started: /nowhere/start_sandbox: No such file"));
  }
}

TEST(PluginSandbox, LossesAreLoggedWithTheKeyAndNotEveryTime) {
  both of;
  std::vector<std::string> lines;
  of.sandboxed.sandbox()->log_to([&](const std::string& line) { lines.push_back(line); });
  const auto& f = of.sandboxed.load_filter("deadly_updates.so", "deadly_filter_segv");
  std::string error;
  for (int i = 0; i < 5; ++i) (void)test(f, "deadly 1", {}, error);
  ASSERT_EQ(lines.size(), 3U);  // the first, the second, the fourth
  EXPECT_THAT(lines[0], HasSubstr("deadly_updates.so:deadly_filter_segv at key \"deadly 1\" ended its sandbox"));
  EXPECT_THAT(lines[2], HasSubstr("4 times so far"));
}

void announce(expected_calls& soon, const std::vector<double>& values, const std::vector<double>& deltas) {
  for (std::size_t i = 0; i < values.size(); ++i)
    soon.add({value_tag::f64, std::as_bytes(std::span(&values[i], 1))},
             {value_tag::f64, std::as_bytes(std::span(&deltas[i], 1))});
  soon.run();
}

TEST(PluginSandbox, AnnouncedCallsAreOneHandOver) {
  both of;
  const auto& u = of.sandboxed.load_update("good_updates.so", "multiply");
  const auto& mine = of.sandboxed.sandbox()->mine();
  const auto before = mine.handed_over();
  std::vector<double> values(100), deltas(100, 3.0);
  std::iota(values.begin(), values.end(), 0.0);
  {
    expected_calls soon(&u);
    announce(soon, values, deltas);
    for (const double v : values) EXPECT_EQ(added(u, v, 3), 3 * v);
    EXPECT_EQ(mine.handed_over(), before + 2);  // 64 calls and 36
    EXPECT_EQ(added(u, 99, 4), 396);            // not announced
    EXPECT_EQ(mine.handed_over(), before + 3);
  }
  EXPECT_EQ(added(u, 5, 3), 15);  // nothing is left of them
  EXPECT_EQ(mine.handed_over(), before + 4);
}

TEST(PluginSandbox, OneThatDiesAmongAnnouncedCallsFailsAlone) {
  both of;
  const auto& u = of.sandboxed.load_update("deadly_updates.so", "deadly_segv");
  std::vector<double> values{1, 2, 3, 4, 5, 6}, deltas{1, 1, -1, 1, -1, 1};
  expected_calls soon(&u);
  announce(soon, values, deltas);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto r = run(u, values[i], deltas[i]);
    if (deltas[i] < 0) EXPECT_EQ(r.outcome, abi::failed);
    else EXPECT_EQ(r.value, values[i] + 1) << r.error;
  }
  EXPECT_EQ(of.sandboxed.sandbox()->lost(), 2U);
}

/// A thread is therefore blocked by at most one call at a time, as without a sandbox.
TEST(PluginSandbox, SlowCallsAreNotMadeAhead) {
  auto o = options();
  o.timeouts = 300ms;
  both of(o);
  const auto& u = of.sandboxed.load_update("deadly_updates.so", "deadly_loop");
  const std::vector<double> values{1, 2, 3}, deltas{-1, -1, 1};
  const auto begun = std::chrono::steady_clock::now();
  expected_calls soon(&u);
  announce(soon, values, deltas);
  EXPECT_EQ(of.sandboxed.sandbox()->lost(), 1U);  // the first; the second waits for its turn
  EXPECT_THAT(why(u, 1, -1), HasSubstr("ran for longer"));
  EXPECT_EQ(of.sandboxed.sandbox()->lost(), 1U);
  EXPECT_THAT(why(u, 2, -1), HasSubstr("ran for longer"));
  EXPECT_EQ(added(u, 3, 1), 4);
  EXPECT_EQ(of.sandboxed.sandbox()->lost(), 2U);
  EXPECT_GE(std::chrono::steady_clock::now() - begun, 600ms);
}

TEST(PluginSandbox, TheFrameworksOwnFunctionsRunInTheServer) {
  both of;
  EXPECT_FALSE(of.sandboxed.load_update("", "").sandboxed);
  EXPECT_TRUE(of.sandboxed.load_update("good_updates.so", "multiply").sandboxed);
  EXPECT_EQ(added(of.sandboxed.load_update("", "paracel_add"), 1, 1), 2);
}

TEST(SandboxMemory, NothingOutsideIsReadOfAnAnswer) {
  namespace layout = sandbox_layout;
  std::vector<std::byte> memory(layout::data_at + 4096);
  const std::uint64_t room_at = layout::data_at + 64;
  const auto parse = [&](const sandbox_answer& a) {
    std::memcpy(memory.data() + layout::answers_at, &a, sizeof a);
    checked_answer out;
    const char* wrong = parse_answer(memory, room_at, 0, out);
    return wrong == nullptr ? std::string() : std::string(wrong);
  };
  sandbox_answer good;
  good.tag = static_cast<std::uint8_t>(value_tag::f64);
  good.result = {room_at, 8};
  EXPECT_EQ(parse(good), "");
  auto a = good;
  a.result = {room_at, 4096};
  EXPECT_EQ(parse(a), "a place outside");
  a.result = {~std::uint64_t{0} - 3, 8};
  EXPECT_EQ(parse(a), "a place outside");
  a.result = {room_at - 8, 8};  // what the server has written
  EXPECT_EQ(parse(a), "a place outside");
  a = good;
  a.text = {room_at, 1024};
  EXPECT_EQ(parse(a), "a place outside");
  a = good;
  a.tag = 9;
  EXPECT_EQ(parse(a), "a type that does not exist");
  a = good;
  a.outcome = 7;
  EXPECT_EQ(parse(a), "no such outcome");
}

}  // namespace
}  // namespace paracel::srv
