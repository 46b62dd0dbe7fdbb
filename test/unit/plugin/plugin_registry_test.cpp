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
#include "test/support/temporary_folder.hpp"

namespace paracel::srv {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

const std::string plugins = test::plugin_folder();
const std::string defaults = test::default_plugin_folder();

std::string refusal(plugin_registry& registry, const std::string& plugin, const std::string& symbol) {
  try {
    (void)registry.load_update(plugin, symbol);
    return "loaded";
  } catch (const plugin_error& e) {
    return e.what();
  }
}

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
  const test::temporary_folder folder;
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
  const test::temporary_folder folder;
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
  // AddressSanitizer adds data symbols to the library that look like a plug-in's.
  if (!test::sanitized) {
    EXPECT_THAT(plugins_in(defaults), Not(Contains("libparacel.so")));
  }
}

TEST(PluginRegistry, APathThatIsWrittenIsLookedForInItsOwnFolderFirst) {
  const test::temporary_folder first;
  const test::temporary_folder second;
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
  EXPECT_THAT(refusal(registry, "wrong_abi", "not_an_update"), HasSubstr("is not a paracel::update_result"));
  EXPECT_THAT(refusal(registry, "wrong_abi", "one_byte"), HasSubstr("is not a paracel::update_result"));
  EXPECT_THAT(refusal(registry, "wrong_abi", "never_assigned"), HasSubstr("is not a paracel::update_result"));
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
  const test::temporary_folder folder;
  std::ofstream(folder / "libtext.so") << "this is no library";
  plugin_registry registry({folder.path(), plugins});
  EXPECT_THAT(refusal(registry, "needs_missing", "uses_missing"), HasSubstr("undefined symbol"));
  EXPECT_THAT(refusal(registry, "text", "f"),
              AllOf(HasSubstr("libtext.so cannot be loaded"), HasSubstr("file too short")));
  // And the registry still works.
  EXPECT_NO_THROW((void)registry.load_update("good_updates", "multiply"));
}

TEST(PluginRegistry, OnlyTheAllowedFoldersAreLookedAt) {
  const test::temporary_folder folder;
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

TEST(PluginRegistry, WhatThePrivateGroupOfTheUserMayWriteIsLoaded) {
  const test::temporary_folder folder;
  const auto file = folder / "libgroup.so";
  fs::copy_file(plugins + "/libgood_updates.so", file);
  if (::geteuid() != 0) GTEST_SKIP() << "whether this user has a private group is unknown";
  ASSERT_EQ(::chown(file.c_str(), 0, 0), 0);
  ASSERT_EQ(::chown(folder.path().c_str(), 0, 0), 0);
  fs::permissions(file, fs::perms::group_write, fs::perm_options::add);
  fs::permissions(folder.path(), fs::perms::group_write, fs::perm_options::add);
  plugin_registry registry({folder.path()});
  EXPECT_EQ(refusal(registry, "group", "multiply"), "loaded");
  constexpr gid_t nobodys = 4000000001;  // a group that does not exist
  ASSERT_EQ(::chown(file.c_str(), 0, nobodys), 0);
  fs::permissions(file, fs::perms::group_write, fs::perm_options::add);
  plugin_registry again({folder.path()});
  EXPECT_THAT(refusal(again, "group", "multiply"), HasSubstr("may be written by its group"));
}

TEST(PluginRegistry, ALibraryThatIsCutOffIsRefusedBeforeItIsMapped) {
  const test::temporary_folder folder;
  const auto whole = plugins + "/libgood_updates.so";
  plugin_registry registry({folder.path()});
  for (const std::uintmax_t part : {2, 20, 50, 65}) {  // at the end are symbols, which are not mapped
    if (test::sanitized && part >= 50) break;          // the rest is debug information, which is never mapped
    const auto name = "cut" + std::to_string(part);
    fs::copy_file(whole, folder / ("lib" + name + ".so"));
    fs::resize_file(folder / ("lib" + name + ".so"), fs::file_size(whole) * part / 100);
    EXPECT_THAT(refusal(registry, name, "multiply"), HasSubstr("is cut off")) << part;
  }
  fs::copy_file(whole, folder / "libwhole.so");
  EXPECT_EQ(refusal(registry, "whole", "multiply"), "loaded");
}

TEST(PluginRegistry, WhatEveryoneMayWriteIsNotLoaded) {
  const test::temporary_folder folder;
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
  const test::temporary_folder folder;
  const auto file = folder / "libgroup.so";
  fs::copy_file(plugins + "/libgood_updates.so", file);
  if (::geteuid() != 0) GTEST_SKIP() << "this user cannot give a file to a group of others";
  constexpr gid_t daemon = 1;
  ASSERT_EQ(::chown(file.c_str(), 0, daemon), 0);
  ASSERT_EQ(::chown(folder.path().c_str(), 0, daemon), 0);
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
  const test::temporary_folder folder;
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
  const test::temporary_folder folder;
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

}  // namespace
}  // namespace paracel::srv
