// kernels/layout.h: conversion of rank-4 tensors between their two physical orders.
//
//   nchw_to_nhwc  y[n,h,w,c] = x[n,c,h,w]        nhwc_to_nchw  the inverse
//
/// Shapes    x, y have N * C * H * W elements.
/// Writes    all of y, assigned.
/// Aliasing  none.
#pragma once

#include "kernels/contract.h"
#include "kernels/image.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

template <typename X, typename Y>
void check(const ImageDims& d, const X& x, const Y& y) {
  Contract("a transposition")
      .size("N", d.N)
      .size("C", d.C)
      .size("pixels", d.pixels())
      .given("x", x)
      .given("y", y);
}

namespace reference {  // T is float or double
template <typename T>
void nchw_to_nhwc(ImageDims d, const T* x, T* y, Run<T> run = {});
template <typename T>
void nhwc_to_nchw(ImageDims d, const T* x, T* y, Run<T> run = {});
}  // namespace reference

namespace cpu {
void nchw_to_nhwc(ImageDims d, const float* x, float* y, Run run);
void nhwc_to_nchw(ImageDims d, const float* x, float* y, Run run);
}  // namespace cpu

/// One launch.
namespace cuda {
void nchw_to_nhwc(ImageDims d, In x, Out y, Run run);
void nhwc_to_nchw(ImageDims d, In x, Out y, Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
