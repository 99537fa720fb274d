// kernels/cpu/conv_cuts.h: the division of a convolution among threads: into whole images or, if
// there are fewer images than threads, into bands of an image's rows.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/conv.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {

/// A convolution on a part of a larger convolution's operands.
struct ConvCut {
  ConvDims dims;
  int64_t x_offset = 0, y_offset = 0;  // in elements
};

/// Returns the number of threads that the work justifies.
int threads_of(const ConvDims& d, const Team& team);

/// Returns at most `threads` cuts of whole images; usable for all directions.
std::vector<ConvCut> cut_images(const ConvDims& d, int threads);

/// Returns cuts into bands of rows, only for channels-last images. Empty if there are enough images
/// or if a band would cover nothing but padding.
///   rows of y   for forward, and for dw and db, whose results the caller adds up
///   rows of x   for dx, each with all rows of y that contribute to it. The padding in `dims` is
///               the part of the windows of these rows that is outside the band.
std::vector<ConvCut> cut_rows_of_y(const ConvDims& d, int threads);
std::vector<ConvCut> cut_rows_of_x(const ConvDims& d, int threads);

}  // namespace trainyard::kernels::cpu
