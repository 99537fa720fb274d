// kernels/cpu/conv_columns.h: convolution as matrix products over patches (im2col).
//
//   columns [pixels, R*S*C] = patches of x
//   y [pixels, K]           = columns * w^T
//   dw [K, R*S*C]           = dy^T * columns
//   dcolumns                = dy * w, added into dx where patches overlap
//
// Only for channels-last images without groups and dilations. Patches are built for a chunk of
// output rows at a time, so that they stay in the cache.
#pragma once

#include <memory>
#include <vector>

#include "kernels/conv.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {

/// Returns whether to use columns. `options.algorithm` decides if it is kDirect or kColumns, else
/// only the shape and the thread count do, so that a resumed job decides the same way.
bool columns_suit_forward(const ConvDims& d, const ConvOptions& options);
bool columns_suit_backward_data(const ConvDims& d, const ConvOptions& options, int threads);
bool columns_suit_backward_weights(const ConvDims& d, const ConvOptions& options);

/// The output rows of one thread, numbered over the batch, and the products for chunks of these
/// rows.
struct ColumnSlice {
  Range rows;
  int64_t chunk_rows = 0, tail_rows = 0;  // tail_rows: rows of a shorter last chunk, or 0
  Matmul chunk, tail;
  int64_t product_offset = 0;  // offset of the products' workspace
  int64_t columns_offset = 0;
};

class ColumnsForward {
 public:
  ColumnsForward(const ConvDims& d, bool bias, int threads, Team& team);
  int64_t workspace_bytes() const { return workspace_.size_bytes(); }
  void run(const float* x, const float* w, const float* b, float* y, void* workspace);

 private:
  ConvDims d_;
  Team& team_;
  std::vector<ColumnSlice> slices_;
  int64_t w_offset_ = 0;
  WorkspaceLayout workspace_;
};

class ColumnsBackwardData {
 public:
  ColumnsBackwardData(const ConvDims& d, int threads, Team& team);
  int64_t workspace_bytes() const { return workspace_.size_bytes(); }
  void run(const float* dy, const float* w, float* dx, void* workspace);

 private:
  ConvDims d_;
  Team& team_;
  std::vector<ColumnSlice> slices_;
  int64_t w_offset_ = 0;
  WorkspaceLayout workspace_;
};

/// All threads fill one chunk of columns, then each multiplies the chunk by its own filters, so
/// that no thread has a private dw that would need adding up.
class ColumnsBackwardWeights {
 public:
  ColumnsBackwardWeights(const ConvDims& d, int threads, Team& team);
  int64_t workspace_bytes() const { return workspace_.size_bytes(); }
  void run(const float* x, const float* dy, float* dw, float* db, void* workspace);

 private:
  struct Filters {
    Range range;
    Matmul first, next, tail;  // the first chunk assigns, the others add
    int64_t product_offset = 0;
  };
  ConvDims d_;
  Team& team_;
  std::vector<Filters> filters_;
  int64_t chunk_rows_ = 0, tail_rows_ = 0;
  int64_t columns_offset_ = 0, dw_offset_ = 0;
  WorkspaceLayout workspace_;
};

}  // namespace trainyard::kernels::cpu
