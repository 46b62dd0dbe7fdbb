// SPDX-License-Identifier: BSD-3-Clause
#include "storage/checkpoint_file.hpp"

#include <functional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <paracel/error.hpp>

#include "storage/checkpoint_store.hpp"
#include "test/support/crash_disk.hpp"

namespace paracel::storage {
namespace {

using bytes = std::vector<std::byte>;
using sections = std::vector<std::pair<std::uint32_t, bytes>>;
using test::crash_disk;

bytes filled(std::size_t n, unsigned seed) {
  bytes b(n);
  for (auto& x : b) x = static_cast<std::byte>((seed = seed * 1103515245 + 12345) >> 16);
  return b;
}

const checkpoint_header mine{
    .kind = checkpoint_kind::server, .clock = 20, .index = 3, .job = 0x1234, .thread = 1, .count = 2};

checkpoint_digest write_file(file_system& on, const std::string& path, const sections& all,
                             const checkpoint_header& h = mine) {
  checkpoint_writer w(on, path, h);
  for (const auto& [section, payload] : all) w.add(section, payload);
  return w.finish();
}

sections read_file(const file_system& on, const std::string& path) {
  checkpoint_reader r(on, path);
  sections all;
  std::uint32_t section = 0;
  bytes payload;
  while (r.next(section, payload)) all.emplace_back(section, payload);
  return all;
}

/// The reason for rejecting it; empty if it is accepted. Every reason names the file and an offset within it or at its
/// end.
std::string refusal(const std::function<void()>& f, const std::string& path, std::size_t size) {
  try {
    f();
  } catch (const data_error& e) {
    const std::string text = e.what();
    std::smatch at;
    EXPECT_TRUE(std::regex_search(text, at, std::regex("^" + path + ": byte ([0-9]+): "))) << text;
    if (!at.empty()) {
      EXPECT_LE(std::stoull(at[1]), size) << text;
    }
    return text;
  }
  return {};
}

TEST(CheckpointFile, ReadsBackItsSectionsInOrder) {
  crash_disk disk;
  const sections all{{7, filled(100, 1)}, {9, filled(1, 2)}, {3, filled(3000000, 3)}, {16384, filled(17, 4)}};
  const auto d = write_file(disk, "f", all);
  EXPECT_EQ(read_file(disk, "f"), all);
  checkpoint_header h;
  EXPECT_EQ(verify_checkpoint_file(disk, "f", &h), d);
  EXPECT_EQ(h, mine);
  EXPECT_EQ(d.bytes, disk.bytes_of("f").size());
  EXPECT_EQ(d.hash, hash_block(disk.bytes_of("f"), 0)) << "what xxhsum -H3 says";
  write_file(disk, "empty", {});
  EXPECT_TRUE(read_file(disk, "empty").empty());
}

TEST(CheckpointFile, ASectionThatIsLongerThanABlockIsReadBackWhole) {
  crash_disk disk;
  const auto longest = filled(checkpoint_block_bytes + 100, 1);
  write_file(disk, "f", {{1, longest}, {2, filled(5, 2)}});
  EXPECT_EQ(disk.bytes_of("f").size(),
            checkpoint_header_bytes + 3 * checkpoint_block_front_bytes + longest.size() + 5 + checkpoint_footer_bytes);
  EXPECT_TRUE(read_file(disk, "f") == (sections{{1, longest}, {2, filled(5, 2)}}));
}

/// The format is documented; changing any byte of it requires a new version.
TEST(CheckpointFile, ItsBytesAreThoseOfTheDocument) {
  crash_disk disk;
  bytes payload;
  for (const char c : std::string("hello")) payload.push_back(static_cast<std::byte>(c));
  const auto d = write_file(disk, "f", {{5, payload}});
  std::string hex;
  for (const auto b : disk.bytes_of("f")) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(b));
    hex += two;
  }
  EXPECT_EQ(hex.substr(0, 112),
            "5052434c434b5054"
            "01000000"
            "0100"
            "0000"
            "14000000"
            "03000000"
            "3412000000000000"
            "01000000"
            "02000000"
            "0000000000000000"
            "0000000000000000");
  EXPECT_EQ(hex.substr(128, 16),
            "05000000"
            "05000000");
  EXPECT_EQ(hex.substr(160, 10), "68656c6c6f");
  EXPECT_EQ(hex.substr(170, 32),
            "0100000000000000"
            "7500000000000000");
  EXPECT_EQ(hex.substr(218), "5052434c444f4e45");
  EXPECT_EQ(d.bytes, 117U);
  EXPECT_EQ(d.hash, 0x258338a863deb0d1ULL);
}

TEST(CheckpointFile, IsRefusedWithItsOffsetWhereverItIsCutOff) {
  crash_disk disk;
  write_file(disk, "f", {{7, filled(30, 1)}, {9, filled(5, 2)}});
  const auto whole = disk.bytes_of("f");
  for (std::size_t n = 0; n < whole.size(); ++n) {
    disk.bytes_of("f") = bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));
    EXPECT_NE(refusal([&] { verify_checkpoint_file(disk, "f"); }, "f", n), "") << n;
  }
  auto longer = whole;
  longer.push_back(std::byte{0});
  disk.bytes_of("f") = longer;
  EXPECT_NE(refusal([&] { verify_checkpoint_file(disk, "f"); }, "f", longer.size()), "");
  longer = whole;  // two footers
  longer.insert(longer.end(), whole.end() - checkpoint_footer_bytes, whole.end());
  disk.bytes_of("f") = longer;
  EXPECT_NE(refusal([&] { verify_checkpoint_file(disk, "f"); }, "f", longer.size()), "");
}

TEST(CheckpointFile, IsRefusedWithItsOffsetWhicheverBitIsFlipped) {
  crash_disk disk;
  write_file(disk, "f", {{7, filled(30, 1)}, {9, filled(5, 2)}});
  const auto whole = disk.bytes_of("f");
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    auto& b = disk.bytes_of("f");
    b = whole;
    b[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_NE(refusal([&] { verify_checkpoint_file(disk, "f"); }, "f", b.size()), "") << "bit " << bit;
  }
}

TEST(CheckpointFile, ABlockThatWasExchangedWithAnotherFilesIsRefused) {
  crash_disk disk;
  write_file(disk, "a", {{7, filled(30, 1)}, {9, filled(30, 2)}});
  write_file(disk, "b", {{7, filled(30, 3)}, {9, filled(30, 2)}});
  auto& a = disk.bytes_of("a");
  const auto& b = disk.bytes_of("b");
  std::copy_n(b.begin() + 64, 46, a.begin() + 64);  // a block that is valid by itself
  EXPECT_NE(refusal([&] { verify_checkpoint_file(disk, "a"); }, "a", a.size()), "");
}

TEST(CheckpointFile, ALengthThatIsNotThereIsRefusedBeforeMemoryIsTaken) {
  crash_disk disk;
  write_file(disk, "f", {{7, filled(30, 1)}});
  auto& b = disk.bytes_of("f");
  for (std::size_t i = 0; i < 4; ++i) b[64 + i] = std::byte{0xff};
  EXPECT_EQ(refusal([&] { verify_checkpoint_file(disk, "f"); }, "f", b.size()).find("a block of 4294967295 bytes"),
            12U);
}

TEST(CheckpointFile, AFullDiskLeavesNothing) {
  const sections all{{7, filled(2000000, 1)}, {9, filled(5, 2)}};
  crash_disk measure;
  write_file(measure, "f", all);
  for (std::uint64_t step = 0; step < measure.steps(); ++step) {
    crash_disk disk;
    disk.fill_at(step);
    try {
      write_file(disk, "f", all);
      EXPECT_EQ(read_file(disk, "f"), all);  // only the folder's fsync was missing
    } catch (const error& e) {
      EXPECT_STREQ(e.what(), "f: cannot be written: No space left on device");
      EXPECT_TRUE(disk.files().empty());
    }
  }
}

// ---- the folder of checkpoints -------------------------------------------------------------------------------------

checkpoint_manifest write_checkpoint(file_system& on, std::uint32_t clock, std::uint64_t job = 0xabc) {
  const auto folder = "d/" + checkpoint_folder_name(clock);
  on.make_folder(folder);
  checkpoint_manifest m{.job = job, .clock = clock, .workers = 1, .servers = 1, .program = "lr", .config = 5};
  m.settings = R"({"rounds": 1e2, "output": "a\"b"})";
  m.functions = {{.id = 7, .plugin = "x", .symbol = std::string("f\0a=1", 5), .filter = true}};
  for (const auto kind : {checkpoint_kind::server, checkpoint_kind::worker}) {
    const checkpoint_header h{.kind = kind, .clock = clock, .job = job, .count = 1};
    const auto name = checkpoint_file_name(h);
    m.files.push_back({name, h, write_file(on, folder + "/" + name, {{clock, filled(40, clock)}}, h)});
  }
  const auto text = m.to_text();
  on.write(folder + "/manifest.json", std::as_bytes(std::span(text)));
  return m;
}

TEST(CheckpointStore, AManifestIsReadBack) {
  crash_disk disk;
  const auto m = write_checkpoint(disk, 20);
  const auto back = verify_checkpoint(disk, "d/0000000020");
  EXPECT_EQ(back.to_text(), m.to_text());
  EXPECT_EQ(back.functions, m.functions);
  EXPECT_EQ(back.program, "lr");
  EXPECT_EQ(back.settings, m.settings);
  auto older = m;  // from before they were recorded
  older.settings.clear();
  EXPECT_EQ(older.to_text().find("settings"), std::string::npos);
  EXPECT_EQ(checkpoint_manifest::from_text(older.to_text(), "m").settings, "");
}

TEST(CheckpointStore, AManifestIsRefusedWhereverItIsCutOrFlipped) {
  crash_disk disk;
  const auto text = write_checkpoint(disk, 20).to_text();
  const auto read = [](const std::string& t) { (void)checkpoint_manifest::from_text(t, "m"); };
  read(text);
  for (std::size_t n = 0; n < text.size(); ++n) {
    EXPECT_NE(refusal([&] { read(text.substr(0, n)); }, "m", text.size()), "") << n;
  }
  for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
    auto flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_NE(refusal([&] { read(flipped); }, "m", text.size()), "") << flipped;
  }
}

TEST(CheckpointStore, ADeeplyNestedManifestIsRefusedAndNotFollowed) {
  const auto read = [](const std::string& t) { (void)checkpoint_manifest::from_text(t, "m"); };
  for (const char* inner : {R"({"checkpoint":)", R"({"checkpoint":{"files":)", R"({"checkpoint":{"format":)"}) {
    const std::string deep = inner + std::string(2'000'000, '[') + std::string(2'000'000, ']') + "}}";
    EXPECT_NE(refusal([&] { read(deep); }, "m", deep.size()).find("nested deeper than 16 levels"), std::string::npos);
    EXPECT_THROW((void)entry_from_json(deep, 1, 1), error);
  }
}

TEST(CheckpointStore, AFileOfAnUnknownKindIsRefused) {
  checkpoint_entry e;
  e.header.job = 7;
  e.name = checkpoint_file_name(e.header);
  auto text = to_json(e);
  EXPECT_EQ(entry_from_json(text, 0, 7).name, e.name);
  const auto at = text.find("\"kind\":1");
  ASSERT_NE(at, std::string::npos) << text;
  text[at + 7] = '3';
  EXPECT_THROW((void)entry_from_json(text, 0, 7), error);
}

TEST(CheckpointStore, TheNewestThatVerifiesIsChosenAndTheReasonAgainstNewerOnesNamed) {
  crash_disk disk;
  for (const std::uint32_t clock : {10U, 20U, 30U, 40U}) write_checkpoint(disk, clock);
  EXPECT_EQ(choose_checkpoint(disk, "d").folder, "d/0000000040");
  disk.bytes_of("d/0000000040/worker-0.ckpt")[90] ^= std::byte{4};
  disk.remove("d/0000000030/server-0-0.ckpt");
  const auto c = choose_checkpoint(disk, "d");
  EXPECT_EQ(c.folder, "d/0000000020");
  EXPECT_EQ(c.manifest.clock, 20U);
  ASSERT_EQ(c.passed_over.size(), 2U);
  EXPECT_EQ(c.passed_over[0].why,
            "d/0000000040/worker-0.ckpt: byte 64: the checksum of the block of section 40 (40 bytes) is wrong");
  EXPECT_EQ(c.passed_over[1].why, "d/0000000030/server-0-0.ckpt: cannot be opened: No such file or directory");
  EXPECT_EQ(choose_checkpoint(disk, "d/0000000010").manifest.clock, 10U) << "one of them by name";
  EXPECT_THROW(choose_checkpoint(disk, "d/0000000030"), data_error);
  EXPECT_THROW(choose_checkpoint(disk, "nowhere"), data_error);
}

TEST(CheckpointStore, AFileOfAnotherJobOrClockIsRefused) {
  crash_disk disk;
  write_checkpoint(disk, 10);
  write_checkpoint(disk, 20);
  disk.bytes_of("d/0000000020/worker-0.ckpt") = disk.bytes_of("d/0000000010/worker-0.ckpt");
  EXPECT_NE(refusal([&] { verify_checkpoint(disk, "d/0000000020"); }, "d/0000000020/worker-0.ckpt", 64), "");
}

TEST(CheckpointStore, KeepsTheNewestThatVerify) {
  crash_disk disk;
  for (std::uint32_t clock = 1; clock <= 5; ++clock) write_checkpoint(disk, clock);
  disk.bytes_of("d/0000000004/worker-0.ckpt")[70] ^= std::byte{1};
  std::map<std::uint32_t, bool> known{{5, true}};
  EXPECT_EQ(prune_checkpoints(disk, "d", 2, known), (std::vector<std::uint32_t>{2, 1}));
  EXPECT_EQ(checkpoint_clocks(disk, "d"), (std::vector<std::uint32_t>{3, 4, 5}));
  write_checkpoint(disk, 6);
  known[6] = true;
  EXPECT_EQ(prune_checkpoints(disk, "d", 2, known), (std::vector<std::uint32_t>{4, 3}));
}

TEST(CheckpointStore, WhatAUserHasPutThereStays) {
  crash_disk disk;
  for (std::uint32_t clock = 1; clock <= 4; ++clock) write_checkpoint(disk, clock);
  const auto put = [&](const std::string& path) {
    disk.make_folder(path.substr(0, path.rfind('/')));
    const std::string theirs = "theirs";
    disk.write(path, std::as_bytes(std::span(theirs)));
  };
  put("d/0000000001/notes.txt");
  put("d/0000000000/thesis.tex");
  put("d/2026010112/measured.csv");
  std::map<std::uint32_t, bool> known;
  EXPECT_EQ(prune_checkpoints(disk, "d", 1, known), (std::vector<std::uint32_t>{3, 2}));
  EXPECT_EQ(set_aside_after(disk, "d", 3), std::vector<std::string>{"0000000004.old"});
  EXPECT_EQ(checkpoint_clocks(disk, "d"), (std::vector<std::uint32_t>{0, 1, 2026010112}));
  EXPECT_TRUE(has_foreign_files(disk, "d/0000000001"));
  EXPECT_FALSE(has_foreign_files(disk, "d/nowhere"));
}

TEST(CheckpointStore, LaterOnesAreSetAside) {
  crash_disk disk;
  for (std::uint32_t clock = 1; clock <= 3; ++clock) write_checkpoint(disk, clock);
  EXPECT_EQ(set_aside_after(disk, "d", 1), (std::vector<std::string>{"0000000002.old", "0000000003.old"}));
  write_checkpoint(disk, 3);
  EXPECT_EQ(set_aside_after(disk, "d", 1), (std::vector<std::string>{"0000000003.old2"}));
  EXPECT_EQ(checkpoint_clocks(disk, "d"), (std::vector<std::uint32_t>{1}));
}

/// What the order temporary file, fsync, rename, fsync of the folder, manifest last guarantees.
TEST(CheckpointStore, WhenThePowerFailsAtAnyStepThePreviousOneOrTheWholeNewOneIsThere) {
  crash_disk measure;
  write_checkpoint(measure, 10);
  const auto before = measure.steps();
  write_checkpoint(measure, 20);
  int old_ones = 0;
  int new_ones = 0;
  for (auto step = before; step <= measure.steps(); ++step) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      crash_disk disk;
      write_checkpoint(disk, 10);
      disk.lose_power_at(step);
      bool finished = false;
      try {
        write_checkpoint(disk, 20);
        finished = true;
      } catch (const crash_disk::power_loss&) {
      }
      disk.restart(seed);
      const auto c = choose_checkpoint(disk, "d");
      (c.manifest.clock == 10 ? old_ones : new_ones) += 1;
      if (finished) {
        EXPECT_EQ(c.manifest.clock, 20U);
      }
    }
  }
  EXPECT_GT(old_ones, 0);
  EXPECT_GT(new_ones, 20) << "also some in which only the folder's fsync was missing";
}

}  // namespace
}  // namespace paracel::storage
