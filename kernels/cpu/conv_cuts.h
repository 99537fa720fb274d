// kernels/cpu/conv_cuts.h: what each thread convolves: some whole images, or where there are fewer
// images than threads, a band of an image's rows.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/conv.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {

/// A convolution of its own on a part of the memory of a larger one.
struct ConvCut {
  ConvDims dims;
  int64_t x_offset = 0, y_offset = 0;  // elements
};

/// Threads that the work is worth.
int threads_of(const ConvDims& d, const Team& team);

/// At most `threads` cuts of whole images: for all directions.
std::vector<ConvCut> cut_images(const ConvDims& d, int threads);

/// Bands of rows, channels-last images alone, empty if there are enough images or a band would
/// see nothing but padding.
///   rows of y   for the forward direction, and for dw and db, which are then to be added up
///   rows of x   for dx, each with all rows of y that it takes part in: `dims` pads as far as these
///               reach beyond the band
std::vector<ConvCut> cut_rows_of_y(const ConvDims& d, int threads);
std::vector<ConvCut> cut_rows_of_x(const ConvDims& d, int threads);

}  // namespace trainyard::kernels::cpu
