// SPDX-License-Identifier: BSD-3-Clause
#include "alg/common/output/npy.hpp"
#include "test/support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include <paracel/error.hpp>

namespace paracel::alg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Npy : public testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }
  [[nodiscard]] std::string bytes(const std::string& name) const {
    std::ifstream in(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string put(const std::string& name, const std::string& what) const {
    std::ofstream(path(name), std::ios::binary) << what;
    return path(name);
  }
  /// The error of reading such a file.
  std::string refusal(const std::string& content) const {
    try {
      read_npy(put("bad.npy", content));
    } catch (const data_error& e) {
      return e.what();
    }
    return "nothing";
  }
  /// A file of version 1 with this dictionary, not aligned.
  static std::string file_with(const std::string& dictionary, const std::string& elements) {
    std::string s("\x93NUMPY\x01\x00", 8);
    s += static_cast<char>(dictionary.size());
    s += '\0';
    return s + dictionary + elements;
  }

  const test::temporary_folder made_{"paracel-npy-"};
  const std::string folder_ = made_.path();
};

TEST_F(Npy, TheBytesAreThoseThatNumpyWrites) {
  write_npy(path("a.npy"), std::vector<double>{1.5, 2, 3, 4}, {2, 2});
  // numpy.save of numpy.array([[1.5, 2], [3, 4]]), NumPy 1.24.
  std::string expected("\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2), }", 69);
  expected += std::string(128 - 69 - 1, ' ') + '\n';
  expected += std::string("\0\0\0\0\0\0\xf8?\0\0\0\0\0\0\0@\0\0\0\0\0\0\x08@\0\0\0\0\0\0\x10@", 32);
  EXPECT_EQ(bytes("a.npy"), expected);
}

TEST_F(Npy, EveryTypeAndShapeComesBack) {
  write_npy(path("f8.npy"), std::vector<double>{0.1, -0.0, std::numeric_limits<double>::infinity()});
  auto a = read_npy(path("f8.npy"));
  EXPECT_THAT(a.shape, ElementsAre(3));
  EXPECT_THAT(a.as<double>(), ElementsAre(0.1, -0.0, std::numeric_limits<double>::infinity()));
  EXPECT_TRUE(std::signbit(a.as<double>()[1]));
  write_npy(path("f4.npy"), std::vector<float>{0.1F, 2, 3, 4, 5, 6}, {3, 2});
  a = read_npy(path("f4.npy"));
  EXPECT_EQ(a.type, npy_type::float32);
  EXPECT_THAT(a.shape, ElementsAre(3, 2));
  EXPECT_EQ(a.as<float>()[0], 0.1F);
  EXPECT_EQ(a.as<double>()[0], static_cast<double>(0.1F));
  write_npy(path("i8.npy"), std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::min(), 7});
  EXPECT_THAT(read_npy(path("i8.npy")).as<std::int64_t>(), ElementsAre(std::numeric_limits<std::int64_t>::min(), 7));
  write_npy(path("u8.npy"), std::vector<std::uint64_t>{~std::uint64_t{0}});
  EXPECT_THAT(read_npy(path("u8.npy")).as<std::uint64_t>(), ElementsAre(~std::uint64_t{0}));
  write_npy(path("empty.npy"), std::vector<double>{}, {0, 5});
  a = read_npy(path("empty.npy"));
  EXPECT_THAT(a.shape, ElementsAre(0, 5));
  EXPECT_TRUE(a.as<double>().empty());
}

TEST_F(Npy, ElementsBeginAtAMultipleOf64Bytes) {
  for (std::uint64_t rows = 1; rows < 2000; rows = rows * 3 + 1) {
    write_npy(path("a.npy"), std::vector<double>(rows), {rows, 1, 1});
    EXPECT_EQ((bytes("a.npy").size() - 8 * rows) % 64, 0U);
  }
}

TEST_F(Npy, AnElementThatAnotherTypeCannotHoldIsSaid) {
  write_npy(path("a.npy"), std::vector<double>{1, 2.5});
  EXPECT_THROW((void)read_npy(path("a.npy")).as<std::int64_t>(), type_error);
  write_npy(path("a.npy"), std::vector<double>{-1});
  EXPECT_THROW((void)read_npy(path("a.npy")).as<std::uint64_t>(), type_error);
  EXPECT_THAT(read_npy(path("a.npy")).as<std::int64_t>(), ElementsAre(-1));
  write_npy(path("a.npy"), std::vector<double>{0x1p64});
  EXPECT_THROW((void)read_npy(path("a.npy")).as<std::uint64_t>(), type_error);
  write_npy(path("a.npy"), std::vector<std::uint64_t>{(std::uint64_t{1} << 53U) + 1});
  EXPECT_THROW((void)read_npy(path("a.npy")).as<double>(), type_error);
  write_npy(path("a.npy"), std::vector<std::uint64_t>{~std::uint64_t{0}});
  EXPECT_THROW((void)read_npy(path("a.npy")).as<double>(), type_error);
  EXPECT_THROW((void)read_npy(path("a.npy")).as<std::int64_t>(), type_error);
}

TEST_F(Npy, OtherVersionsAndByteOrdersAreRead) {
  std::string swapped("\x3f\xf8\0\0\0\0\0\0", 8);
  put("a.npy", file_with("{'descr': '>f8', 'fortran_order': False, 'shape': (1,)}\n", swapped));
  EXPECT_THAT(read_npy(path("a.npy")).as<double>(), ElementsAre(1.5));
  const std::string dictionary = "{'shape': (), \"descr\": '<i8', 'fortran_order': False, }";
  std::string two("\x93NUMPY\x02\x00", 8);
  two += static_cast<char>(dictionary.size());
  two += std::string(3, '\0') + dictionary + std::string("\x05\0\0\0\0\0\0\0", 8);
  put("a.npy", two);
  const auto a = read_npy(path("a.npy"));
  EXPECT_TRUE(a.shape.empty());
  EXPECT_THAT(a.as<std::int64_t>(), ElementsAre(5));
}

TEST_F(Npy, WhatIsNoArrayIsSaid) {
  const std::string eight(8, '\0');
  EXPECT_THAT(refusal("1,2,3\n"), HasSubstr("found another format, want an .npy file"));
  EXPECT_THAT(refusal(""), HasSubstr("bad.npy: found another format"));
  EXPECT_THAT(refusal(std::string("\x93NUMPY\x09\x00\x05\x00....", 14)), HasSubstr("found .npy version 9"));
  EXPECT_THAT(refusal(std::string("\x93NUMPY\x01\x00\x7f\x00....", 14)), HasSubstr("the .npy header is cut off"));
  EXPECT_THAT(refusal(file_with("{'descr': '<f8', 'shape': (1,)}", eight)), HasSubstr("want an .npy header"));
  EXPECT_THAT(refusal(file_with("{'descr': '<c16', 'fortran_order': False, 'shape': (1,)}", eight)),
              HasSubstr("elements of type <c16, want <f8"));
  EXPECT_THAT(refusal(file_with("{'descr': '<f8', 'fortran_order': True, 'shape': (1, 1)}", eight)),
              HasSubstr("want an array in C order"));
  EXPECT_THAT(refusal(file_with("{'descr': '<f8', 'fortran_order': False, 'shape': (2,)}", eight)),
              HasSubstr("found 8 bytes of elements, want the shape (2,)"));
  EXPECT_THAT(refusal(file_with("{'descr': '<f8', 'fortran_order': False, 'shape': (x,)}", eight)),
              HasSubstr("want an .npy header"));
  EXPECT_THAT(refusal(file_with("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", eight)),
              HasSubstr("bytes of elements"));
  EXPECT_THROW(read_npy(path("none.npy")), data_error);
}

TEST_F(Npy, AFileIsWholeOrNotThere) {
  EXPECT_THROW(write_npy(path("a.npy"), std::vector<double>(5), {2, 2}), error);
  EXPECT_FALSE(std::filesystem::exists(path("a.npy")));
  EXPECT_THROW(write_npy(path("no/such/a.npy"), std::vector<double>(5)), error);
  std::filesystem::create_directory(path("taken.npy"));
  EXPECT_THROW(write_npy(path("taken.npy"), std::vector<double>(5)), error);
  EXPECT_FALSE(std::filesystem::exists(path("taken.npy.tmp")));
}

}  // namespace
}  // namespace paracel::alg
