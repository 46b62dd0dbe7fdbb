// SPDX-License-Identifier: BSD-3-Clause
#include "storage/file_system.hpp"
#include "test/support/temporary_folder.hpp"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <paracel/error.hpp>

namespace paracel::storage {
namespace {

std::span<const std::byte> bytes_of(const std::string& s) { return std::as_bytes(std::span(s)); }
std::string text_of(const std::vector<std::byte>& b) { return {reinterpret_cast<const char*>(b.data()), b.size()}; }
constexpr std::size_t plenty = std::size_t{1} << 24;

class Disk : public testing::Test {
 protected:
  [[nodiscard]] std::string at(const std::string& name) const { return folder_ + "/" + name; }
  /// The number of files in the folder, including temporary ones.
  [[nodiscard]] long files() const {
    return std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator());
  }

  posix_file_system disk_;
  const test::temporary_folder made_{"paracel_disk_"};
  const std::string folder_ = made_.path();
};

TEST_F(Disk, ReadsBackWhatWasWritten) {
  std::string all(300000, '\0');
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(i * 7);
  for (const auto& content : {std::string(), std::string("x"), std::string(4096, 'y'), all}) {
    disk_.write(at("f"), bytes_of(content));
    EXPECT_EQ(text_of(disk_.read(at("f"), plenty)), content);
  }
  EXPECT_EQ(files(), 1);
}

TEST_F(Disk, AReaderSeesTheOldFileOrTheNewOneNeverAMixture) {
  const std::string a(100000, 'a');
  const std::string b(50000, 'b');
  disk_.write(at("f"), bytes_of(a));
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    posix_file_system mine;
    for (int i = 0; !stop; ++i) mine.write(at("f"), bytes_of(i % 2 == 0 ? b : a));
  });
  int seen_a = 0;
  int seen_b = 0;
  for (int i = 0; i < 200000 && (i < 300 || seen_a == 0 || seen_b == 0); ++i) {
    const auto now = text_of(disk_.read(at("f"), plenty));
    if (now == a) ++seen_a;
    else if (now == b) ++seen_b;
    else ADD_FAILURE() << "a mixture of " << now.size() << " bytes";
  }
  stop = true;
  writer.join();
  EXPECT_GT(seen_a, 0);
  EXPECT_GT(seen_b, 0);
}

TEST_F(Disk, AWriteThatFailsLeavesTheOldFileAndNoOther) {
  disk_.write(at("f"), bytes_of("old"));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string said;
  try {
    disk_.write(at("f"), bytes_of(std::string(10000, 'n')));
  } catch (const error& e) {
    said = e.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(said, at("f") + ": cannot be written: File too large");
  EXPECT_EQ(text_of(disk_.read(at("f"), plenty)), "old");
  EXPECT_EQ(files(), 1);
}

TEST_F(Disk, AWriterThatIsKilledLeavesAWholeFile) {
  const std::string a(200000, 'a');
  const std::string b(200000, 'b');
  disk_.write(at("f"), bytes_of(a));
  for (int round = 0; round < 10; ++round) {
    const auto child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      posix_file_system mine;
      for (int i = 0;; ++i) mine.write(at("f"), bytes_of(i % 2 == 0 ? b : a));
    }
    ::usleep(2000 * (round + 1));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const auto now = text_of(disk_.read(at("f"), plenty));
    EXPECT_TRUE(now == a || now == b);
    EXPECT_EQ(disk_.list(folder_), std::vector<std::string>{"f"});
  }
}

TEST_F(Disk, AFileThatIsLongerThanAllowedIsRefused) {
  disk_.write(at("f"), bytes_of("12345"));
  EXPECT_EQ(disk_.read(at("f"), 5).size(), 5U);
  EXPECT_THROW((void)disk_.read(at("f"), 4), error);
  EXPECT_THROW((void)disk_.read("/dev/zero", 100000), error);  // it has no size
}

TEST_F(Disk, ListsNamesInOrderWithoutUnfinishedFiles) {
  disk_.write(at("b"), bytes_of("1"));
  disk_.write(at("a"), bytes_of("1"));
  disk_.write(at(".paracel.1.0.tmp"), bytes_of("left over"));
  disk_.make_folder(at("c/d"));
  EXPECT_EQ(disk_.list(folder_), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_TRUE(disk_.list(at("c/d")).empty());
}

TEST_F(Disk, ATemporaryNameThatIsTakenIsPassedOver) {
  // all of this process's next names are taken: left behind by a dead process with the same id
  for (int i = 0; i < 200; ++i) {
    const auto name = at(".paracel." + std::to_string(::getpid()) + "." + std::to_string(i) + ".tmp");
    FILE* f = std::fopen(name.c_str(), "w");
    ASSERT_NE(f, nullptr);
    std::fclose(f);
  }
  disk_.write(at("f"), bytes_of("new"));
  EXPECT_EQ(text_of(disk_.read(at("f"), plenty)), "new");
  EXPECT_EQ(files(), 201);
}

TEST_F(Disk, ANewFileHasTheModeOfTheUsersMask) {
  const auto before = ::umask(027);
  disk_.write(at("f"), bytes_of("1"));
  ::umask(before);
  struct stat about {};
  ASSERT_EQ(::stat(at("f").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777U, 0640U);
}

TEST_F(Disk, RemovesAFileOnce) {
  disk_.write(at("f"), bytes_of("1"));
  EXPECT_TRUE(disk_.remove(at("f")));
  EXPECT_FALSE(disk_.remove(at("f")));
  EXPECT_EQ(files(), 0);
}

TEST_F(Disk, AFolderOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  disk_.make_folder(at("theirs/0000000007"));
  ASSERT_EQ(::chown(at("theirs").c_str(), 65534, 65534), 0);
  EXPECT_NO_THROW(disk_.require_own(at("theirs/0000000007")));
  EXPECT_NO_THROW(disk_.require_own(at("nowhere")));
  const auto refusal = [&](auto&& f) {
    try {
      f();
      return std::string("taken");
    } catch (const error& e) {
      return std::string(e.what());
    }
  };
  const auto text = at("theirs") + ": belongs to another user (uid 65534, this is uid 0)";
  EXPECT_EQ(refusal([&] { disk_.make_folder(at("theirs")); }), text);
  EXPECT_EQ(refusal([&] { disk_.require_own(at("theirs")); }), text);
}

TEST_F(Disk, EveryFailureNamesThePathAndTheReason) {
  const auto said = [](auto call) -> std::string {
    try {
      call();
    } catch (const error& e) {
      return e.what();
    }
    return "no error";
  };
  const auto missing = at("no/such");
  const std::string absent = "No such file or directory";
  EXPECT_EQ(said([&] { (void)disk_.read(missing, plenty); }), missing + ": cannot be opened: " + absent);
  EXPECT_EQ(said([&] { disk_.write(missing, {}); }), missing + ": cannot be written: " + absent);
  EXPECT_EQ(said([&] { (void)disk_.list(missing); }), missing + ": cannot be listed: " + absent);
  EXPECT_EQ(said([&] { (void)disk_.read(folder_, plenty); }), folder_ + ": cannot be read: Is a directory");
  EXPECT_EQ(said([&] { disk_.write(folder_, {}); }), folder_ + ": cannot be replaced: Is a directory");
  disk_.write(at("f"), {});
  EXPECT_EQ(said([&] { disk_.make_folder(at("f")); }), at("f") + ": cannot be created: Not a directory");
  EXPECT_EQ(said([&] { disk_.make_folder(at("f/g")); }), at("f/g") + ": cannot be created: Not a directory");
  EXPECT_EQ(said([&] { (void)disk_.list(at("f")); }), at("f") + ": cannot be listed: Not a directory");
  EXPECT_EQ(said([&] { disk_.remove(at("f/g")); }), at("f/g") + ": cannot be removed: Not a directory");
}

TEST_F(Disk, APathWithoutAFolderIsInTheWorkingFolder) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  disk_.write("bare", bytes_of("1"));
  std::filesystem::current_path(before);
  EXPECT_EQ(disk_.list(folder_), std::vector<std::string>{"bare"});
}

}  // namespace
}  // namespace paracel::storage
