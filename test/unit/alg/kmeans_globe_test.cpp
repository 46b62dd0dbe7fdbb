// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>
#include <vector>

#include <paracel/error.hpp>

#include "alg/kmeans/kmeans_input.hpp"

namespace paracel::alg {
namespace {

double haversine(const double* a, const double* b) {
  const double to = std::numbers::pi / 180;
  const double h = std::pow(std::sin((a[0] - b[0]) * to / 2), 2) +
                   std::cos(a[0] * to) * std::cos(b[0] * to) * std::pow(std::sin((a[1] - b[1]) * to / 2), 2);
  return 2 * std::asin(std::sqrt(h));
}

TEST(KmeansGlobe, ChordsOfTheSphereAreHaversineDistancesAndPlacesComeBack) {
  std::mt19937 random(4);
  std::vector<double> degrees;
  for (int i = 0; i < 50; ++i) {
    degrees.push_back(std::uniform_real_distribution<>(-90, 90)(random));
    degrees.push_back(std::uniform_real_distribution<>(-180, 180)(random));
  }
  const auto points = on_sphere(degrees);
  ASSERT_EQ(points.size(), 150U);
  for (int i = 0; i < 50; ++i) {
    for (int j = 0; j < 50; ++j) {
      double chord = 0;
      for (int c = 0; c < 3; ++c) chord += std::pow(points[3 * i + c] - points[3 * j + c], 2);
      EXPECT_NEAR(2 * std::asin(std::min(1.0, std::sqrt(chord) / 2)), haversine(&degrees[2 * i], &degrees[2 * j]),
                  1e-7);
    }
  }
  const auto back = on_globe(points);
  for (std::size_t i = 0; i < degrees.size(); ++i) EXPECT_NEAR(back[i], degrees[i], 1e-9);
}

TEST(KmeansGlobe, RefusesWhatIsNoPlace) {
  const auto rows = [](const char* text) {
    return parse_samples("f", text, {.label = sample_options::label_rule::none});
  };
  auto three = rows("1,2,3\n");
  EXPECT_THROW(to_sphere(three, {"f"}), data_error);
  auto beyond = rows("1,2\n91,3\n");
  EXPECT_THROW(to_sphere(beyond, {"f"}), data_error);
  auto good = rows("90,20\n0,-180\n");
  to_sphere(good, {"f"});
  EXPECT_EQ(good.columns, 3U);
  EXPECT_EQ(good.rows(), 2U);
  EXPECT_NEAR(good.value[2], 1, 1e-15);
  EXPECT_NEAR(good.value[3], -1, 1e-15);
}

}  // namespace
}  // namespace paracel::alg
