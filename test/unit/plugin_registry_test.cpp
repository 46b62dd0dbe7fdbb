// SPDX-License-Identifier: BSD-3-Clause
#include "server/plugin/plugin_registry.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <paracel/error.hpp>

#include "server/plugin/plugin_files.hpp"
#include "test/support/paths.hpp"
#include "test/support/sanitized.hpp"

namespace paracel::srv {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

const std::string plugins = test::plugin_folder();
const std::string defaults = test::default_plugin_folder();

/// A folder that is gone after the test.
class temporary_folder {
 public:
  temporary_folder() {
    std::string name = (fs::temp_directory_path() / "plugins-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~temporary_folder() { fs::remove_all(path_); }
  temporary_folder(const temporary_folder&) = delete;
  [[nodiscard]] std::string path() const { return path_.string(); }
  [[nodiscard]] fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

std::string refusal(plugin_registry& registry, const std::string& plugin, const std::string& symbol) {
  try {
    (void)registry.load_update(plugin, symbol);
    return "loaded";
  } catch (const plugin_error& e) {
    return e.what();
  }
}

template <class V, class D>
struct result {
  V value{};
  std::string error;
  abi::outcome outcome = abi::ok;
};

template <class V, class D>
result<V, D> run(const loaded_update& u, const V& value, const D& delta) {
  result<V, D> r;
  std::vector<std::byte> out;
  const encoded<V> v(value);
  const encoded<D> d(delta);
  const auto tag = apply(u, v.view(), d.view(), out, r.error, &r.outcome);
  EXPECT_EQ(tag == value_tag::none, !r.error.empty());
  if (tag != value_tag::none) r.value = decode<V>({tag, out});
  return r;
}

template <class T, class D>
std::string run_in_place(const loaded_update& u, std::vector<T>& value, const std::vector<D>& delta,
                         abi::outcome* outcome = nullptr) {
  std::string error;
  const encoded<std::vector<D>> d(delta);
  const bool done =
      apply_in_place(u, array_tag_of<T>(), std::as_writable_bytes(std::span(value)), d.view(), error, outcome);
  EXPECT_EQ(done, error.empty());
  return error;
}

template <class V, class D>
V first_value(const loaded_update& u, const D& delta, std::string& error) {
  std::vector<std::byte> out;
  const encoded<D> d(delta);
  const auto tag = apply_to_missing(u, d.view(), out, error);
  EXPECT_EQ(tag == value_tag::none, !error.empty());
  return tag == value_tag::none ? V{} : decode<V>({tag, out});
}

// ---- finding and loading -----------------------------------------------------------------------------------------

TEST(PluginRegistry, EachSpellingOfAPluginIsTheSameOne) {
  plugin_registry registry({plugins});
  const auto& first = registry.load_update("libgood_updates.so", "add_lists");
  EXPECT_EQ(first.name, "libgood_updates.so:add_lists");
  EXPECT_TRUE(first.additive);
  for (const auto* spelling : {"good_updates", "good_updates.so", "libgood_updates", "./build/lib/libgood_updates.so",
                               "/nowhere/good_updates"})
    EXPECT_EQ(&registry.load_update(spelling, "add_lists"), &first) << spelling;
  EXPECT_EQ(registry.find(first.id), &first);
  EXPECT_FALSE(registry.load_update("good_updates", "multiply").additive);
}

TEST(PluginRegistry, TheDefaultPluginNeedsNoName) {
  plugin_registry registry({defaults});
  const auto& add = registry.load_update("", "");
  EXPECT_EQ(add.name, "libparacel_default.so:paracel_add");
  EXPECT_TRUE(add.additive);
  EXPECT_EQ(&registry.load_update("paracel_default", ""), &add);
  EXPECT_EQ(registry.load_update("", "paracel_max").name, "libparacel_default.so:paracel_max");
}

TEST(PluginRegistry, TheDefaultPluginIsFoundBesideTheFramework) {
  plugin_registry registry({});
  EXPECT_EQ(registry.load_update("", "").name, "libparacel_default.so:paracel_add");
}

TEST(PluginRegistry, IdsAreTheSameInEveryServerAndDifferPerFunction) {
  plugin_registry one({plugins, defaults});
  plugin_registry two({defaults, plugins});
  std::set<std::uint64_t> ids;
  const std::vector<std::pair<std::string, std::string>> functions{
      {"good_updates", "add_lists"}, {"good_updates", "multiply"}, {"", "paracel_add"}, {"", "default_incr_d"}};
  for (const auto& [plugin, symbol] : functions) {
    EXPECT_EQ(one.load_update(plugin, symbol).id, two.load_update(plugin, symbol).id) << symbol;
    ids.insert(one.load_update(plugin, symbol).id);
  }
  EXPECT_EQ(ids.size(), functions.size());
}

TEST(PluginRegistry, TheIdFollowsTheContentAndNotTheName) {
  const temporary_folder folder;
  fs::copy_file(plugins + "/libgood_updates.so", folder / "libcopy.so");
  plugin_registry registry({folder.path(), plugins});
  const auto copy = registry.load_update("copy", "add_lists").id;
  EXPECT_EQ(copy, registry.load_update("good_updates", "add_lists").id);
  std::ofstream(folder / "libcopy2.so", std::ios::binary)
      << std::ifstream(plugins + "/libgood_updates.so", std::ios::binary).rdbuf() << "one more byte";
  EXPECT_NE(registry.load_update("copy2", "add_lists").id, copy);
}

TEST(PluginRegistry, AnUnknownIdIsNull) {
  plugin_registry registry({plugins});
  EXPECT_EQ(registry.find(0), nullptr);
  const auto id = registry.load_update("good_updates", "multiply").id;
  EXPECT_EQ(registry.find(id + 1), nullptr);
}

TEST(PluginRegistry, AMissingPluginIsToldWithWhatIsThere) {
  plugin_registry registry({plugins});
  EXPECT_THAT(refusal(registry, "god_updates", "f"),
              AllOf(HasSubstr("no plug-in \"god_updates\": looked for god_updates and libgod_updates.so in " + plugins),
                    HasSubstr("--plugin-dir"), HasSubstr("; plug-ins there: "), HasSubstr("libgood_updates.so")));
  plugin_registry nowhere({});
  EXPECT_THAT(refusal(nowhere, "x.so", "f"), HasSubstr("no folder is allowed for plug-ins"));
  plugin_registry gone({"/nonexistent/folder"});
  EXPECT_THAT(refusal(gone, "x.so", "f"), HasSubstr("/nonexistent/folder"));
}

TEST(PluginRegistry, AMissingPluginIsToldAsItWasWrittenAndWithPluginsOnly) {
  const temporary_folder folder;
  std::ofstream(folder / "libtext.so") << "this is no library";
  std::ofstream(folder / "libempty.so").flush();
  fs::copy_file(plugins + "/libgood_updates.so", folder / "libmine.so");
  fs::copy_file(plugins + "/libno_updates.so", folder / "libnone.so");
  fs::copy_file(plugins + "/libgood_updates.so", folder / "libcut.so");
  fs::resize_file(folder / "libcut.so", 5000);
  plugin_registry registry({folder.path()});
  const auto text = refusal(registry, "./sub/libhll_update.so", "f");
  EXPECT_THAT(text, AllOf(HasSubstr("no plug-in \"./sub/libhll_update.so\": looked for libhll_update.so and "),
                          HasSubstr("; plug-ins there: libmine.so")));
  for (const auto* other : {"libtext", "libempty", "libnone", "libcut"}) EXPECT_THAT(text, Not(HasSubstr(other)));
  EXPECT_THAT(plugins_in(defaults), Contains("libparacel_default.so"));
  // AddressSanitizer gives the library symbols of data that look like those of a plug-in.
  if (!test::sanitized) {
    EXPECT_THAT(plugins_in(defaults), Not(Contains("libparacel.so")));
  }
}

TEST(PluginRegistry, APathThatIsWrittenIsLookedForInItsOwnFolderFirst) {
  const temporary_folder first;
  const temporary_folder second;
  fs::copy_file(plugins + "/libgood_updates.so", first / "libmine.so");
  fs::copy_file(plugins + "/libno_updates.so", second / "libmine.so");
  plugin_registry registry({first.path(), second.path()});
  EXPECT_THAT(refusal(registry, second.path() + "/libmine.so", "multiply"),
              HasSubstr(second.path() + "/libmine.so has no"));
  EXPECT_EQ(refusal(registry, "libmine.so", "multiply"), "loaded");
}

TEST(PluginRegistry, AMissingFunctionIsToldWithWhatIsExported) {
  plugin_registry registry({plugins});
  EXPECT_THAT(refusal(registry, "good_updates", "ad_lists"),
              AllOf(HasSubstr("libgood_updates.so has no 'ad_lists'; it exports add_lists, add_unsigned, append_list, "
                              "count_words, half_step, multiply, running_mean"),
                    Not(HasSubstr("begins_with_x"))));
  EXPECT_THAT(refusal(registry, "good_updates", ""), HasSubstr("no function was named; it exports add_lists"));
  EXPECT_THAT(refusal(registry, "no_updates", "f"), HasSubstr("it exports no update function"));
}

TEST(PluginRegistry, WhatIsNoUpdateFunctionIsRefusedByName) {
  plugin_registry registry({plugins});
  EXPECT_THAT(refusal(registry, "no_updates", "answer"), HasSubstr("'answer' is a function; export"));
  EXPECT_THAT(refusal(registry, "wrong_abi", "plain_function"), HasSubstr("paracel::update_proxy(plain_function)"));
  EXPECT_THAT(refusal(registry, "good_updates", "begins_with_x"), HasSubstr("is a filter"));
  EXPECT_THAT(refusal(registry, "wrong_abi", "not_an_update"), HasSubstr("is no paracel::update_result"));
  EXPECT_THAT(refusal(registry, "wrong_abi", "one_byte"), HasSubstr("is no paracel::update_result"));
  EXPECT_THAT(refusal(registry, "wrong_abi", "never_assigned"), HasSubstr("is no paracel::update_result"));
  // A symbol of a library that the plug-in needs is not the plug-in's.
  EXPECT_THAT(refusal(registry, "good_updates", "malloc"), HasSubstr("has no 'malloc'"));
}

TEST(PluginRegistry, AnotherAbiIsRefusedWithBothNumbers) {
  plugin_registry registry({plugins});
  EXPECT_THAT(refusal(registry, "wrong_abi", "newer_version"),
              HasSubstr("was built for plug-in ABI 7 (152 bytes), this "
                        "server has 1 (152 bytes)"));
  EXPECT_THAT(refusal(registry, "wrong_abi", "other_size"), HasSubstr("ABI 1 (96 bytes)"));
  EXPECT_THAT(refusal(registry, "wrong_abi", "empty_inside"), HasSubstr("has neither a general nor an in-place"));
  EXPECT_THAT(refusal(registry, "wrong_abi", "unknown_type"), HasSubstr("a type that this version does not know"));
}

TEST(PluginRegistry, ALibraryThatCannotBeLoadedSaysWhy) {
  const temporary_folder folder;
  std::ofstream(folder / "libtext.so") << "this is no library";
  plugin_registry registry({folder.path(), plugins});
  EXPECT_THAT(refusal(registry, "needs_missing", "uses_missing"), HasSubstr("undefined symbol"));
  EXPECT_THAT(refusal(registry, "text", "f"),
              AllOf(HasSubstr("libtext.so cannot be loaded"), HasSubstr("file too short")));
  // And the registry goes on.
  EXPECT_NO_THROW((void)registry.load_update("good_updates", "multiply"));
}

TEST(PluginRegistry, OnlyTheAllowedFoldersAreLookedAt) {
  const temporary_folder folder;
  plugin_registry registry({folder.path()});
  for (const auto& name : {plugins + "/libgood_updates.so", std::string("../libgood_updates.so"), std::string("..")})
    EXPECT_NE(refusal(registry, name, "multiply"), "loaded") << name;
  fs::create_symlink(plugins + "/libgood_updates.so", folder / "liblink.so");
  EXPECT_THAT(refusal(registry, "link", "multiply"), HasSubstr("is a symbolic link, which is not followed"));
  fs::create_directory(folder / "libfolder.so");
  EXPECT_THAT(refusal(registry, "folder", "multiply"), HasSubstr("is not a regular file"));
  ASSERT_EQ(::mkfifo((folder / "libpipe.so").c_str(), 0600), 0);
  EXPECT_THAT(refusal(registry, "pipe", "multiply"), HasSubstr("is not a regular file"));
  EXPECT_THAT(refusal(registry, std::string("a\0b", 3), "f"), HasSubstr("cannot be the file name"));
  EXPECT_THAT(refusal(registry, std::string(5000, 'a'), "f"), HasSubstr("cannot be the file name"));
  EXPECT_THAT(refusal(registry, "folder/", "f"), HasSubstr("named by the file name of its library"));
}

TEST(PluginRegistry, ALibraryThatIsCutOffIsRefusedBeforeItIsMapped) {
  const temporary_folder folder;
  const auto whole = plugins + "/libgood_updates.so";
  plugin_registry registry({folder.path()});
  for (const std::uintmax_t part : {2, 20, 50, 80}) {
    if (test::sanitized && part >= 50) break;  // what is behind is debug information, which nothing maps
    const auto name = "cut" + std::to_string(part);
    fs::copy_file(whole, folder / ("lib" + name + ".so"));
    fs::resize_file(folder / ("lib" + name + ".so"), fs::file_size(whole) * part / 100);
    EXPECT_THAT(refusal(registry, name, "multiply"), HasSubstr("is cut off")) << part;
  }
  fs::copy_file(whole, folder / "libwhole.so");
  EXPECT_EQ(refusal(registry, "whole", "multiply"), "loaded");
}

TEST(PluginRegistry, WhatEveryoneMayWriteIsNotLoaded) {
  const temporary_folder folder;
  fs::copy_file(plugins + "/libgood_updates.so", folder / "libopen.so");
  fs::permissions(folder / "libopen.so", fs::perms::others_write, fs::perm_options::add);
  plugin_registry registry({folder.path()});
  EXPECT_THAT(refusal(registry, "open", "multiply"), HasSubstr("may be written by everyone: chmod o-w"));
  fs::permissions(folder / "libopen.so", fs::perms::others_write, fs::perm_options::remove);
  fs::permissions(folder.path(), fs::perms::others_write, fs::perm_options::add);
  EXPECT_THAT(refusal(registry, "open", "multiply"),
              HasSubstr("lies in " + folder.path() + ", which may be written by everyone: chmod o-w it"));
  fs::permissions(folder.path(), fs::perms::others_write, fs::perm_options::remove);
  EXPECT_EQ(refusal(registry, "open", "multiply"), "loaded");
}

TEST(PluginRegistry, WhatAGroupMayWriteIsNotLoaded) {
  const temporary_folder folder;
  const auto file = folder / "libgroup.so";
  fs::copy_file(plugins + "/libgood_updates.so", file);
  fs::permissions(file, fs::perms::group_write, fs::perm_options::add);
  plugin_registry registry({folder.path()});
  EXPECT_THAT(refusal(registry, "group", "multiply"),
              HasSubstr("libgroup.so may be written by its group: chmod g-w it"));
  fs::permissions(file, fs::perms::group_write, fs::perm_options::remove);
  fs::permissions(folder.path(), fs::perms::group_write, fs::perm_options::add);
  EXPECT_THAT(refusal(registry, "group", "multiply"),
              HasSubstr("lies in " + folder.path() + ", which may be written by its group"));
  fs::permissions(folder.path(), fs::perms::group_write, fs::perm_options::remove);
  EXPECT_EQ(refusal(registry, "group", "multiply"), "loaded");
}

TEST(PluginRegistry, WhatAnotherUserOwnsIsNotLoaded) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const temporary_folder folder;
  const auto file = folder / "libtheirs.so";
  fs::copy_file(plugins + "/libgood_updates.so", file);
  plugin_registry registry({folder.path()});
  ASSERT_EQ(::chown(file.c_str(), 65534, 65534), 0);
  EXPECT_THAT(refusal(registry, "theirs", "multiply"),
              HasSubstr("libtheirs.so belongs to another user (uid 65534, neither root"));
  ASSERT_EQ(::chown(file.c_str(), 0, 0), 0);
  ASSERT_EQ(::chown(folder.path().c_str(), 65534, 65534), 0);
  EXPECT_THAT(refusal(registry, "theirs", "multiply"),
              HasSubstr("lies in " + folder.path() + ", which belongs to another user (uid 65534"));
  ASSERT_EQ(::chown(folder.path().c_str(), 0, 0), 0);
  EXPECT_EQ(refusal(registry, "theirs", "multiply"), "loaded");
}

TEST(PluginRegistry, ARefusedFileDoesNotHideAGoodOneInTheNextFolder) {
  const temporary_folder folder;
  fs::create_symlink(plugins + "/libgood_updates.so", folder / "libgood_updates.so");
  plugin_registry registry({folder.path(), plugins});
  EXPECT_EQ(refusal(registry, "good_updates", "multiply"), "loaded");
}

TEST(PluginRegistry, ThreadsLoadAndFindAtTheSameTime) {
  plugin_registry registry({plugins, defaults});
  const auto known = registry.load_update("", "").id;
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop) ASSERT_NE(registry.find(known), nullptr);
  });
  std::vector<std::thread> loaders;
  std::vector<const loaded_update*> seen(4);
  for (std::size_t i = 0; i < seen.size(); ++i)
    loaders.emplace_back([&, i] {
      for (const auto* f : {"multiply", "add_unsigned", "half_step", "count_words"})
        seen[i] = &registry.load_update("good_updates", f);
    });
  for (auto& t : loaders) t.join();
  stop = true;
  reader.join();
  EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 1U);
}

// ---- applying ------------------------------------------------------------------------------------------------------

class UpdateInServer : public testing::Test {
 protected:
  plugin_registry registry_{{plugins, defaults}};
  const loaded_update& good(const std::string& f) { return registry_.load_update("good_updates", f); }
  const loaded_update& failing(const std::string& f) { return registry_.load_update("failing_updates", f); }
  const loaded_update& shipped(const std::string& f) { return registry_.load_update("", f); }
};

using list = std::vector<double>;
using words = std::map<std::string, int>;

TEST_F(UpdateInServer, GeneralFormsGiveTheNewValue) {
  EXPECT_EQ(run(good("add_lists"), list{1, 2}, list{3, 4}).value, (list{4, 6}));
  EXPECT_EQ(run(good("append_list"), list{1}, list{2, 3}).value, (list{1, 2, 3}));
  EXPECT_EQ(run(good("count_words"), words{{"a", 1}}, std::pair<std::string, int>("b", 2)).value,
            (words{{"a", 1}, {"b", 2}}));
  EXPECT_EQ(run(good("multiply"), 3.0, 4.0).value, 12.0);
  EXPECT_EQ(run(good("add_unsigned"), 3UL, 4UL).value, 7UL);
}

TEST_F(UpdateInServer, AFailureNamesTheFunctionItsTypesAndTheReason) {
  const auto thrown = run(failing("throws_text"), 1.0, 2.0);
  EXPECT_EQ(thrown.error, "libfailing_updates.so:throws_text (f64, f64): cannot go on with this value");
  EXPECT_EQ(thrown.outcome, abi::failed);
  EXPECT_THAT(run(failing("throws_number"), 1.0, 2.0).error, HasSubstr("not a std::exception"));
  const auto mismatch = run(good("add_lists"), words{}, list{1});
  EXPECT_EQ(mismatch.error,
            "libgood_updates.so:add_lists (f64 array, f64 array): value is packed map, asked for f64 array");
  EXPECT_EQ(mismatch.outcome, abi::type_mismatch);
}

TEST_F(UpdateInServer, ANonsenseResultIsAFailureAndNotAValue) {
  EXPECT_THAT(run(failing("returns_malformed"), 1.0, 2.0).error, HasSubstr("returned nothing that is a value"));
  EXPECT_THAT(run(failing("returns_nothing"), 1.0, 2.0).error, HasSubstr("returned nothing that is a value"));
}

TEST_F(UpdateInServer, InPlaceWorksOnTheValueItself) {
  std::vector<float> value{1, 2, 3};
  EXPECT_EQ(run_in_place(good("half_step"), value, std::vector<float>{2, 2, 2}), "");
  EXPECT_EQ(value, (std::vector<float>{0, 1, 2}));
  float one = 5;
  std::string error;
  const encoded<float> delta(2.0F);
  EXPECT_TRUE(apply_in_place(good("half_step"), value_tag::f32, std::as_writable_bytes(std::span(&one, 1)),
                             delta.view(), error));
  EXPECT_EQ(one, 4.0F);
  // And through the form that makes a new value.
  EXPECT_EQ(run(good("half_step"), std::vector<float>{4}, std::vector<float>{2}).value, std::vector<float>{3});
}

TEST_F(UpdateInServer, AFunctionThatThrowsHalfwayLeavesTheValueAsItWas) {
  const list before{1, 2, 3, 4};
  list value = before;
  abi::outcome outcome = abi::ok;
  EXPECT_EQ(run_in_place(failing("throws_halfway"), value, list{9, 9, 9, 9}, &outcome),
            "libfailing_updates.so:throws_halfway (f64, f64): stopped halfway");
  EXPECT_EQ(value, before);
  EXPECT_EQ(outcome, abi::failed);
  EXPECT_THAT(run(failing("throws_halfway"), value, list{9, 9, 9, 9}).error, HasSubstr("stopped halfway"));
}

TEST(PluginRegistry, AForbiddenFunctionFailsWithTheReasonInEveryForm) {
  const auto id = plugin_registry({defaults}).load_update("", "").id;
  for (const bool loaded_before : {true, false}) {
    plugin_registry registry({plugins, defaults});
    if (loaded_before) (void)registry.load_update("", "");
    registry.forbid(id, "it has ended s1");
    registry.forbid(id, "a later reason");
    const auto& add = registry.load_update("", "");
    const auto ended = run(add, 1.0, 2.0);
    EXPECT_THAT(ended.error, HasSubstr("it has ended s1"));
    EXPECT_EQ(ended.outcome, abi::failed);
    double value = 1;
    const double delta = 2;
    std::string error;
    const value_view change{value_tag::f64, std::as_bytes(std::span(&delta, 1))};
    EXPECT_FALSE(apply_in_place(add, value_tag::f64, std::as_writable_bytes(std::span(&value, 1)), change, error));
    EXPECT_EQ(value, 1);
    EXPECT_FALSE(cannot_fail(add, {value_tag::f64, std::as_bytes(std::span(&value, 1))}, change));
    std::vector<std::byte> out;
    EXPECT_EQ(apply_to_missing(add, change, out, error), value_tag::none);
  }
  plugin_registry registry({plugins});
  const auto& filter = registry.load_filter("filters", "ends_with_seven");
  registry.forbid(filter.id, "it has ended s2");
  std::string error;
  EXPECT_FALSE(paracel::srv::test(filter, "k7", {}, error).has_value());
  EXPECT_THAT(error, HasSubstr("it has ended s2"));
}

TEST_F(UpdateInServer, ADeltaAtAnyAddressIsUnderstood) {
  const list numbers{10, 20, 30};
  for (std::size_t shift = 0; shift < 9; ++shift) {
    std::vector<std::byte> memory(shift + 24);
    std::memcpy(memory.data() + shift, numbers.data(), 24);
    const value_view delta{value_tag::f64_array, std::span(memory).subspan(shift)};
    list value{1, 2, 3};
    std::string error;
    ASSERT_TRUE(apply_in_place(shipped("paracel_add"), value_tag::f64_array, std::as_writable_bytes(std::span(value)),
                               delta, error));
    EXPECT_EQ(value, (list{11, 22, 33})) << shift;
  }
}

TEST_F(UpdateInServer, AFunctionSeesOnlyAlignedDeltas) {
  const auto check = update_in_place<double>([](std::span<double> value, std::span<const double> delta) noexcept {
    value[0] = static_cast<double>(reinterpret_cast<std::uintptr_t>(delta.data()) % alignof(double));
  });
  const loaded_update u{.id = 1, .name = "check", .function = &check, .additive = false};
  alignas(double) const std::array<std::byte, 16> memory{};
  for (std::size_t shift = 0; shift < 8; ++shift) {
    double value = -1;
    std::string error;
    ASSERT_TRUE(apply_in_place(u, value_tag::f64, std::as_writable_bytes(std::span(&value, 1)),
                               {value_tag::f64, std::span(memory).subspan(shift, 8)}, error));
    EXPECT_EQ(value, 0) << shift;
  }
}

TEST_F(UpdateInServer, ALargeMisalignedDeltaIsUnderstoodToo) {
  const std::size_t n = 300000;  // beyond what a thread keeps
  std::vector<std::byte> memory(n * 8 + 1);
  const list ones(n, 1.0);
  std::memcpy(memory.data() + 1, ones.data(), n * 8);
  for (int i = 0; i < 2; ++i) {
    list value(n, 2.0);
    std::string error;
    ASSERT_TRUE(apply_in_place(shipped("paracel_add"), value_tag::f64_array, std::as_writable_bytes(std::span(value)),
                               {value_tag::f64_array, std::span(memory).subspan(1)}, error));
    EXPECT_EQ(value, list(n, 3.0));
  }
}

TEST_F(UpdateInServer, ANarrowerDeltaWidensAndAWiderOneIsRefused) {
  const auto& add = shipped("paracel_add");
  list value{1, 2};
  EXPECT_EQ(run_in_place(add, value, std::vector<int>{1, -1}), "");
  EXPECT_EQ(run_in_place(add, value, std::vector<float>{0.5F, 0.5F}), "");
  EXPECT_EQ(value, (list{2.5, 1.5}));
  abi::outcome outcome = abi::ok;
  EXPECT_EQ(
      run_in_place(add, value, std::vector<std::int64_t>{1, 1}, &outcome),
      "libparacel_default.so:paracel_add (any number, any number): value is f64 array of 2, delta is i64 array of "
      "2: the delta would lose precision");
  EXPECT_EQ(outcome, abi::type_mismatch);
  std::vector<int> whole{1};
  EXPECT_THAT(run_in_place(add, whole, list{0.5}), HasSubstr("lose precision"));
  EXPECT_EQ(whole, std::vector<int>{1});
  EXPECT_EQ(run(add, 1.0, 2).value, 3.0);
  EXPECT_EQ(run(add, std::int64_t{1} << 40, 2).value, (std::int64_t{1} << 40) + 2);
}

TEST_F(UpdateInServer, SizesAndShapesMustAgree) {
  const auto& add = shipped("paracel_add");
  list value{1, 2, 3};
  EXPECT_THAT(run_in_place(add, value, list{1, 2}),
              HasSubstr("value is f64 array of 3, delta is f64 array of 2: both must have the same size"));
  EXPECT_THAT(run(add, value, 1.0).error, HasSubstr("one number and an array are not mixed"));
  EXPECT_THAT(run(add, 1.0, list{1.0}).error, HasSubstr("one number and an array are not mixed"));
  EXPECT_THAT(run(add, std::string("a"), 1.0).error, HasSubstr("value is packed string, delta is f64"));
  EXPECT_THAT(run(add, 1.0, std::string("a")).error, HasSubstr("value is f64, delta is packed string"));
  EXPECT_THAT(run(good("half_step"), list{1}, list{1}).error, HasSubstr("the value has another type"));
  EXPECT_EQ(value, (list{1, 2, 3}));
}

TEST_F(UpdateInServer, AnEmptyArrayIsAnArray) {
  list value;
  EXPECT_EQ(run_in_place(shipped("paracel_add"), value, list{}), "");
  EXPECT_EQ(run(good("add_lists"), list{}, list{}).error, "");
  EXPECT_EQ(run(shipped("paracel_assign"), list{1}, list{}).error, "");
}

TEST_F(UpdateInServer, TheBestPathIsTold) {
  const list two{1, 2}, three{1, 2, 3};
  const encoded<list> a(two), b(three);
  const encoded<std::string> text(std::string("x"));
  EXPECT_EQ(path_of(shipped("paracel_add"), a.view(), a.view()), apply_path::in_place);
  EXPECT_EQ(path_of(good("add_lists"), a.view(), a.view()), apply_path::general);
  EXPECT_EQ(path_of(shipped("paracel_assign"), a.view(), a.view()), apply_path::in_place);
  EXPECT_EQ(path_of(shipped("paracel_assign"), a.view(), b.view()), apply_path::general);
  EXPECT_EQ(path_of(shipped("paracel_assign"), text.view(), text.view()), apply_path::general);
  EXPECT_EQ(path_of(shipped("paracel_add"), text.view(), a.view()), apply_path::general);
}

TEST_F(UpdateInServer, AMissingKeyTakesTheDelta) {
  std::string error;
  EXPECT_EQ((first_value<list>(shipped("paracel_add"), list{1, 2}, error)), (list{1, 2}));
  EXPECT_EQ((first_value<list>(good("add_lists"), list{1, 2}, error)), (list{1, 2}));
  EXPECT_EQ((first_value<std::string>(shipped("paracel_assign"), std::string("x"), error)), "x");
  EXPECT_EQ((first_value<std::uint64_t>(good("add_unsigned"), 5UL, error)), 5UL);
  EXPECT_EQ(error, "");
}

TEST_F(UpdateInServer, AMissingKeyTakesTheDeltaAsTheTypeOfTheValue) {
  std::string error;
  std::vector<std::byte> out;
  const encoded<int> one(1);
  EXPECT_EQ(apply_to_missing(shipped("default_incr_d"), one.view(), out, error), value_tag::f64);
  EXPECT_EQ(decode<double>({value_tag::f64, out}), 1.0);
  const std::vector<int> ints{1, 2};
  const encoded<std::vector<int>> e(ints);
  EXPECT_EQ(apply_to_missing(shipped("default_incr_ld"), e.view(), out, error), value_tag::f64_array);
  EXPECT_EQ(apply_to_missing(good("add_lists"), e.view(), out, error), value_tag::f64_array);
  const encoded<std::vector<unsigned>> packed(std::vector<unsigned>{1, 2});
  EXPECT_EQ(apply_to_missing(shipped("default_incr_li"), packed.view(), out, error), value_tag::i32_array);
  EXPECT_EQ(decode<std::vector<int>>({value_tag::i32_array, out}), ints);
  EXPECT_EQ(error, "");
}

TEST_F(UpdateInServer, ADeltaThatCannotBeAValueDoesNotBecomeOne) {
  const auto refused = [](const loaded_update& u, const auto& delta) {
    std::string error;
    (void)first_value<double>(u, delta, error);
    return error;
  };
  EXPECT_THAT(refused(good("count_words"), std::pair<std::string, int>("a", 1)),
              HasSubstr("the key is not there, and a delta that is packed list cannot become its value"));
  EXPECT_THAT(refused(shipped("default_incr_i"), 0.5), HasSubstr("value is f64, asked for i32"));
  EXPECT_THAT(refused(shipped("paracel_add"), std::string("x")), HasSubstr("packed string cannot become its value"));
  EXPECT_THAT(refused(good("multiply"), list{1}), HasSubstr("value is f64 array, asked for f64"));
}

TEST_F(UpdateInServer, AnInitialiserBeginsAndTheUpdateFollows) {
  std::string error;
  EXPECT_EQ((first_value<list>(good("running_mean"), 3.0, error)), (list{3, 1}));
  EXPECT_EQ(run(good("running_mean"), list{3, 1}, 5.0).value, (list{8, 2}));
  EXPECT_EQ(error, "");
}

// ---- the functions that are shipped --------------------------------------------------------------------------------

template <class T>
std::vector<T> shipped_on(const loaded_update& u, std::vector<T> value, const std::vector<T>& delta) {
  EXPECT_EQ(run_in_place(u, value, delta), "");
  return value;
}

TEST_F(UpdateInServer, TheShippedFunctionsWorkOnEveryNumberType) {
  const auto check = [&]<class T>(T) {
    using v = std::vector<T>;
    const v a{1, -5, 7, 0, 3}, b{2, -6, 7, 1, -3};
    EXPECT_EQ(shipped_on(shipped("paracel_add"), a, b), (v{3, -11, 14, 1, 0}));
    EXPECT_EQ(shipped_on(shipped("paracel_max"), a, b), (v{2, -5, 7, 1, 3}));
    EXPECT_EQ(shipped_on(shipped("paracel_min"), a, b), (v{1, -6, 7, 0, -3}));
    EXPECT_EQ(shipped_on(shipped("paracel_assign"), a, b), b);
    EXPECT_EQ(run(shipped("paracel_add"), a[0], b[0]).value, T{3});
    // Long enough for the vectorised part and its rest.
    v many(1003), ones(1003, T{1});
    for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<T>(i);
    const auto sum = shipped_on(shipped("paracel_add"), many, ones);
    for (std::size_t i = 0; i < many.size(); ++i) ASSERT_EQ(sum[i], static_cast<T>(i + 1));
  };
  check(std::int32_t{}), check(std::int64_t{}), check(float{}), check(double{});
}

TEST_F(UpdateInServer, ParacelsNamesTakeTheTypeTheyName) {
  EXPECT_EQ(run(shipped("default_incr_i"), 1, 2).value, 3);
  EXPECT_EQ(run(shipped("default_incr_f"), 1.0F, 2.0F).value, 3.0F);
  EXPECT_EQ(run(shipped("default_incr_d"), 1.0, 2.0).value, 3.0);
  EXPECT_EQ(run(shipped("default_incr_li"), std::vector<int>{1}, std::vector<int>{2}).value, std::vector<int>{3});
  EXPECT_EQ(run(shipped("default_incr_lf"), std::vector<float>{1}, std::vector<float>{2}).value, std::vector<float>{3});
  EXPECT_EQ(run(shipped("default_incr_ld"), list{1}, list{2}).value, list{3});
  EXPECT_THAT(run(shipped("default_incr_i"), 1.0, 2.0).error, HasSubstr("the value has another type"));
  for (const auto* f : {"paracel_add", "default_incr_i", "default_incr_f", "default_incr_d", "default_incr_li",
                        "default_incr_lf", "default_incr_ld"})
    EXPECT_TRUE(shipped(f).additive) << f;
  for (const auto* f : {"paracel_assign", "paracel_max", "paracel_min"}) EXPECT_FALSE(shipped(f).additive) << f;
}

TEST_F(UpdateInServer, IntegersWrapAround) {
  constexpr auto top = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(run(shipped("paracel_add"), top, 1).value, std::numeric_limits<std::int32_t>::min());
  constexpr auto bottom = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(run(shipped("paracel_add"), bottom, std::int64_t{-1}).value, std::numeric_limits<std::int64_t>::max());
}

TEST_F(UpdateInServer, ANotANumberNeverWinsAComparison) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto* f : {"paracel_max", "paracel_min"}) {
    EXPECT_EQ(run(shipped(f), 1.0, nan).value, 1.0);
    EXPECT_TRUE(std::isnan(run(shipped(f), nan, 1.0).value));
  }
}

TEST_F(UpdateInServer, AssignReplacesTypeAndSize) {
  std::vector<std::byte> out;
  std::string error;
  const std::string text("new");
  const encoded<double> number(1.0);
  const encoded<std::string> word(text);
  EXPECT_EQ(apply(shipped("paracel_assign"), number.view(), word.view(), out, error), value_tag::packed);
  EXPECT_EQ(decode<std::string>({value_tag::packed, out}), "new");
  EXPECT_EQ(run(shipped("paracel_assign"), list{1}, list{2, 3}).value, (list{2, 3}));
}

}  // namespace
}  // namespace paracel::srv
