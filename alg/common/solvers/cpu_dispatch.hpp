// SPDX-License-Identifier: BSD-3-Clause
//
// Loops that are compiled for two instruction sets: written once, in functions that are always inlined, they are
// vectorised for the target of the function that inlines them. Which one runs is decided when a program starts.
#pragma once

#define PARACEL_INLINE [[gnu::always_inline]] inline
#if defined(__x86_64__)
#define PARACEL_AVX2 [[gnu::target("avx2,fma")]]
#else
#define PARACEL_AVX2
#endif
#define PARACEL_AVX2_INLINE PARACEL_AVX2 PARACEL_INLINE

namespace paracel::alg {

inline bool has_avx2() noexcept {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
#else
  return false;
#endif
}

/// `Body`: a PARACEL_INLINE function.
template <auto Body>
struct compiled_for;
template <class R, class... A, R (*Body)(A...)>
struct compiled_for<Body> {
  static R any_cpu(A... arguments) { return Body(arguments...); }
  PARACEL_AVX2 static R avx2(A... arguments) { return Body(arguments...); }
  static auto* this_cpu() noexcept { return has_avx2() ? avx2 : any_cpu; }
};

}  // namespace paracel::alg
