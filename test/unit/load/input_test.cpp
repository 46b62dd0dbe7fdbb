// SPDX-License-Identifier: BSD-3-Clause
#include "load/input/input.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "load/input/foreign_format.hpp"
#include "paracel/error.hpp"
#include "paracel/samples.hpp"
#include "test/support/compressed.hpp"
#include "test/support/temporary_folder.hpp"

namespace {

namespace fs = std::filesystem;
using paracel::input_piece;
using paracel::input_set;
using paracel::test::gzip;
using paracel::test::zstd;

class Input : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) {
    const auto path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
  }
  static std::string read_all(const std::vector<std::string>& names, std::size_t size = 1,
                              std::size_t piece_bytes = input_set::default_piece_bytes) {
    std::string all;
    for (std::size_t r = 0; r < size; ++r) {
      input_set(names).visit(
          r, size,
          [&](const input_piece& p) {
            // Every piece but the last of a file ends at a line end.
            if (!all.empty() && p.begins_file() && all.back() != '\n') all += '\n';
            EXPECT_TRUE(p.begins_file() || all.empty() || all.back() == '\n');
            all += p.text();
          },
          {}, piece_bytes);
    }
    return all;
  }
  static std::string error_of(const std::vector<std::string>& names) {
    try {
      read_all(names);
    } catch (const paracel::data_error& e) {
      return e.what();
    }
    return "accepted";
  }

  const paracel::test::temporary_folder folder_{"input_"};
};

TEST_F(Input, PiecesOfAllRanksAreTheFilesWhateverTheyAreCompressedBy) {
  std::mt19937 rng(3);
  for (int round = 0; round < 25; ++round) {
    std::vector<std::string> names;
    std::string expected;
    const auto files = 1 + rng() % 4;
    for (std::size_t f = 0; f < files; ++f) {
      std::string text;
      const auto lines = rng() % 40;
      for (std::size_t i = 0; i < lines; ++i) {
        text += std::string(rng() % 9 == 0 ? 300 : rng() % 6, static_cast<char>('a' + rng() % 26));
        text += rng() % 4 == 0 ? "\r\n" : "\n";
      }
      if (!text.empty() && rng() % 3 == 0) text.pop_back();
      if (!expected.empty() && expected.back() != '\n' && !text.empty()) expected += '\n';
      expected += text;
      const auto name = std::to_string(round) + "/" + std::to_string(f);
      switch (rng() % 3) {
        case 0:
          names.push_back(write(name + ".txt", text));
          break;
        case 1:
          names.push_back(write(name + ".gz", gzip(text)));
          break;
        default:
          names.push_back(write(name + ".zst", zstd(text)));
      }
    }
    for (const std::size_t size : {1U, 2U, 3U, 5U, 40U}) {
      for (const std::size_t piece : {std::size_t{1}, std::size_t{50}, input_set::default_piece_bytes}) {
        ASSERT_EQ(read_all(names, size, piece), expected) << round << " " << size << " " << piece;
      }
    }
  }
}

TEST_F(Input, FilesThatCannotBeCutGoWholeToOneRankAndAreSpread) {
  std::vector<std::string> names;
  for (int f = 0; f < 4; ++f) names.push_back(write(std::to_string(f) + ".gz", gzip("line\n")));
  for (std::size_t r = 0; r < 4; ++r) {
    const auto parts = input_set(names).parts(r, 4);
    ASSERT_EQ(parts.size(), 1U);
    EXPECT_EQ(parts[0].file, r);
  }
}

TEST_F(Input, MembersAndFramesOneAfterTheOtherAreOneText) {
  EXPECT_EQ(read_all({write("two.gz", gzip("a\nb") + gzip("c\n") + gzip(""))}), "a\nbc\n");
  const std::string skipped("\x50\x2a\x4d\x18\x03\x00\x00\x00xyz", 11);
  EXPECT_EQ(read_all({write("two.zst", skipped + zstd("a\nb") + skipped + zstd("c\n"))}), "a\nbc\n");
}

TEST_F(Input, TheFirstBytesSayWhatAFileIsAndItsNameMustNotSayOtherwise) {
  EXPECT_EQ(read_all({write("plainly", gzip("a\n"))}), "a\n");
  EXPECT_EQ(read_all({write("plainly", zstd("a\n"))}), "a\n");
  const auto gz = write("text.gz", "a\n");
  EXPECT_EQ(error_of({gz}), gz + ": byte 0: found no gzip data, want it in a file that is called .gz");
  const auto zst = write("text.zst", gzip("a\n"));
  EXPECT_EQ(error_of({zst}), zst + ": byte 0: found no zstd data, want it in a file that is called .zst");
  const auto nothing = write("nothing.gz", "");
  EXPECT_EQ(error_of({nothing}), nothing + ": byte 0: found no gzip data, want it in a file that is called .gz");
}

TEST_F(Input, ACompressedFileThatIsCutOffIsNeverAccepted) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += std::to_string(i * 7919) + "\n";
  for (const auto& [name, bytes] :
       {std::pair<std::string, std::string>{"cut.gz", gzip(text)}, {"cut.zst", zstd(text)}}) {
    for (std::size_t length = 4; length < bytes.size(); length += 5) {
      const auto path = write(name, bytes.substr(0, length));
      const auto what = error_of({path});
      ASSERT_TRUE(what.starts_with(path + ": byte ")) << what;
      ASSERT_NE(what.find("is cut off"), std::string::npos) << what;
    }
  }
}

TEST_F(Input, ACompressedFileThatIsDamagedIsRefusedWithTheByte) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += std::to_string(i * 7919) + "\n";
  const auto bytes = gzip(text);
  for (std::size_t at = 10; at < bytes.size(); at += 7) {  // the first bytes of the header do not matter
    auto damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    const auto path = write("damaged.gz", damaged);
    const auto what = error_of({path});
    // There may be an unused bit after the last block.
    if (what == "accepted") ASSERT_EQ(read_all({path}), text);
    else ASSERT_NE(what.find(": byte "), std::string::npos) << at << " " << what;
  }
  const auto path = write("more.gz", bytes + "junk");
  EXPECT_EQ(error_of({path}),
            path + ": byte " + std::to_string(bytes.size()) + ": found bytes that do not begin a gzip member");
  auto frame = zstd(text);
  frame[5] = '\xff';
  EXPECT_NE(error_of({write("damaged.zst", frame)}), "accepted");
}

TEST_F(Input, DamageIsSaidToBeDamageAlsoWhenItLooksLikeWrongTextFirst) {
  std::string text;
  for (int i = 0; i < 200000; ++i) text += std::to_string(i * 7919LL) + "\n";
  auto bytes = gzip(text);
  bytes[bytes.size() - 5] =
      static_cast<char>(bytes[bytes.size() - 5] ^ 1);  // the checksum, which follows all of the text
  const auto name = write("sum.gz", bytes);
  try {
    input_set({name}).visit(0, 1,
                            [](const input_piece& piece) { piece.fail(piece.text().data(), "found nothing good"); });
    ADD_FAILURE();
  } catch (const paracel::data_error& e) {
    EXPECT_NE(std::string(e.what()).find("the gzip data is damaged: incorrect data check"), std::string::npos)
        << e.what();
  }
}

TEST_F(Input, ALineLongerThanAnyBufferIsWhole) {
  const std::string line(3 << 20, 'x');
  for (const auto& name : {write("long.txt", line + "\nend"), write("long.gz", gzip(line + "\nend"))}) {
    EXPECT_EQ(read_all({name}), line + "\nend");
    EXPECT_EQ(read_all({name}, 3), line + "\nend");
  }
}

TEST_F(Input, PlacesCountLinesOfTheWholeFileAndNoByteOrderMark) {
  std::string text = "\xef\xbb\xbf";
  for (int i = 1; i <= 1000; ++i) text += "line " + std::to_string(i) + "\n";
  for (const auto& name : {write("a.txt", text), write("a.gz", gzip(text)), write("a.zst", zstd(text))}) {
    for (const std::size_t size : {1U, 3U}) {
      int line = 0;
      for (std::size_t r = 0; r < size; ++r) {
        input_set(std::vector{name})
            .visit(
                r, size,
                [&](const input_piece& piece) {
                  paracel::for_each_line(piece.text(), [&](std::string_view l, std::size_t) {
                    ++line;
                    EXPECT_EQ(l, "line " + std::to_string(line));
                    if (line % 83 != 1) return;
                    EXPECT_EQ(piece.place(l.data() + 5), name + ":" + std::to_string(line) + ":6");
                  });
                },
                {}, 700);
      }
      EXPECT_EQ(line, 1000);
    }
  }
}

TEST_F(Input, AHeadIsWholeLinesAndStandardInputCanBeVisitedAfterIt) {
  const auto name = write("a",
                          "\xef\xbb\xbf"
                          "one\ntwo\nthree");
  EXPECT_EQ(input_set({name}).head(0), "one\n");
  EXPECT_EQ(input_set({name}).head(0, 100), "one\ntwo\nthree");

  std::string text;
  for (int i = 0; i < 100000; ++i) text += "number " + std::to_string(i) + "\n";
  for (const auto& bytes : {text, gzip(text), zstd(text)}) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const int kept = ::dup(0);
    ::dup2(ends[0], 0);
    ::close(ends[0]);
    std::thread writer([&] {
      for (std::size_t at = 0; at < bytes.size();) {
        const auto n = ::write(ends[1], bytes.data() + at, std::min<std::size_t>(bytes.size() - at, 1000));
        if (n <= 0) break;
        at += static_cast<std::size_t>(n);
      }
      ::close(ends[1]);
    });
    {
      input_set input({"-"});
      EXPECT_TRUE(input.standard_input());
      EXPECT_EQ(input.head(0), "number 0\n");
      EXPECT_EQ(input.head(0, 12), "number 0\nnumber 1\n");
      EXPECT_TRUE(input.parts(1, 2).empty());
      std::string all;
      std::string place;
      input.visit(0, 2, [&](const input_piece& p) {
        all += p.text();
        place = p.place(p.text().data() + p.text().size() - 2);
      });
      EXPECT_EQ(all, text);
      EXPECT_EQ(place, "stdin:100000:12");
    }
    EXPECT_EQ(error_of({"-"}), "stdin: has already been read, want a file for input that is read twice");
    writer.join();
    ::dup2(kept, 0);
    ::close(kept);
  }
}

TEST_F(Input, LinesAndTextComeThroughTheSameDoor) {
  const auto gz = write("a.gz", gzip("one\r\ntwo\n\n"));
  const auto txt = write("b", "three");
  EXPECT_EQ(paracel::read_lines(std::vector{gz, txt}), (std::vector<std::string>{"one", "two", "", "three"}));
  std::string text;
  paracel::visit_text({gz, txt}, 0, 1, [&](std::string_view t) { text += t; });
  EXPECT_EQ(text, "one\r\ntwo\n\nthree");
}

TEST(ForeignFormat, WordsAtTheBeginningOfATextAreNone) {
  using paracel::refuse_foreign_format;
  const std::string zeros(64, '\0');
  for (const auto& text :
       {std::string("ORC"), std::string("ORC,b\n1,2\n"),
        std::string("ORC\xc3\xa9"
                    "e,b\n"),
        std::string("PAR1\xe2\x82\xac,b\n"), std::string("ORC\xf0\x9f\x98\x80\n"), std::string("BZh9,2\n"),
        "MATLAB 5.0 MAT-file,x\n" + std::string(200, '1'), std::string(257, '1') + "ustar,2\n"})
    EXPECT_NO_THROW(refuse_foreign_format("f", text)) << text;
  for (const auto& data :
       {"ORC\x08" + zeros, "ORC\xc3(" + zeros, "ORC\xff" + zeros, "ORC\n\x03" + zeros, "PAR1\x15\x04" + zeros,
        "MATLAB 5.0 MAT-file" + std::string(105, ' ') + std::string("\0\1IM", 4) + zeros,
        std::string(257, '1') + std::string("ustar\0", 6), std::string(257, '1') + std::string("ustar  \0", 8)})
    EXPECT_THROW(refuse_foreign_format("f", data), paracel::data_error) << data;
}

}  // namespace
