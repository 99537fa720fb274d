#include "kernels/conv.h"

#include <stdexcept>
#include <vector>

#include "kernels/cpu/conv_columns.h"
#include "kernels/cpu/conv_cuts.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/simd/elementwise.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
using Tag = dnnl::memory::format_tag;
using ForwardDesc = dnnl::convolution_forward::primitive_desc;
constexpr auto kF32 = dnnl::memory::data_type::f32;
// `auto` is not used, because it may choose the Winograd algorithm, whose rounding differs.
constexpr auto kDirect = dnnl::algorithm::convolution_direct;

constexpr int64_t kWeightsPerThread = int64_t{32} * 1024;  // minimum for a reorder
constexpr int64_t kFilterStep = 64;  // most filters per block in oneDNN's weight formats

// The descriptors that all three directions of one cut share, and the forward primitive from which
// the backward ones are derived. `w` may be Tag::any.
struct ConvSetup {
  Desc x, b, y;
  Dims strides, dilates, pads_begin, pads_end;
  ForwardDesc forward;

  ConvSetup(const ConvDims& d, const ConvOptions& o, const Desc& w) {
    const Tag tag = o.channels_last ? Tag::nhwc : Tag::nchw;
    const ImageDims out = d.y();
    x = Desc({d.x.N, d.x.C, d.x.H, d.x.W}, kF32, tag);
    y = Desc({out.N, out.C, out.H, out.W}, kF32, tag);
    if (o.bias) b = Desc({d.K}, kF32, Tag::x);
    strides = {d.window.stride_h, d.window.stride_w};
    dilates = {d.window.dilation_h - 1, d.window.dilation_w - 1};  // in oneDNN, 0 is dense
    pads_begin = {d.window.pad_top, d.window.pad_left};
    pads_end = {d.window.pad_bottom, d.window.pad_right};
    const auto kind = dnnl::prop_kind::forward_training;
    const auto desc = o.bias ? dnnl::convolution_forward::desc(kind, kDirect, x, w, b, y, strides,
                                                               dilates, pads_begin, pads_end)
                             : dnnl::convolution_forward::desc(kind, kDirect, x, w, y, strides,
                                                               dilates, pads_begin, pads_end);
    forward = ForwardDesc(desc, user_scratchpad(), onednn_engine());
  }
};

Desc weights_desc(const ConvDims& d, bool plain) {
  if (d.group == 1) {
    return Desc({d.K, d.x.C, d.window.R, d.window.S}, kF32, plain ? Tag::oihw : Tag::any);
  }
  return Desc({d.group, d.K / d.group, d.group_channels(), d.window.R, d.window.S}, kF32,
              plain ? Tag::goihw : Tag::any);
}
Desc plain_weights(const ConvDims& d) { return weights_desc(d, true); }
Desc any_weights(const ConvDims& d) { return weights_desc(d, false); }

/// All cuts must use the same internal weight format, which the first one chooses.
void check_same(const Desc& first, const Desc& other) {
  if (!(first == other)) throw std::logic_error("oneDNN chose two weight formats for one layer");
}

/// Converts weights from one format to another, in parallel slices along K if there are many.
class WeightReorder {
 public:
  WeightReorder() = default;
  WeightReorder(const ConvDims& d, const Desc& from, const Desc& to, const Team& team) {
    if (from == to) return;
    int64_t parts =
        std::clamp<int64_t>(std::min(d.weight_elements() / kWeightsPerThread, d.K / kFilterStep), 1,
                            static_cast<int64_t>(team.size()));
    if (d.group > 1) parts = 1;
    for (int64_t i = 0; i < parts && parts > 1; ++i) {
      const Range k = part_of(d.K, i, parts, kFilterStep);
      const Dims dims = {k.size(), d.x.C, d.window.R, d.window.S}, offsets = {k.begin, 0, 0, 0};
      const Desc sub_from = from.submemory_desc(dims, offsets, /*allow_empty=*/true);
      const Desc sub_to = to.submemory_desc(dims, offsets, /*allow_empty=*/true);
      if (sub_from.get_size() == 0 || sub_to.get_size() == 0) {
        parts = 1;  // this format's blocks do not follow K
        slices_.clear();
      } else {
        slices_.push_back(prepare_reorder(sub_from, sub_to));
      }
    }
    if (parts == 1) slices_.push_back(prepare_reorder(from, to));
  }
  explicit operator bool() const { return !slices_.empty(); }
  void run(Team& team, const void* from, void* to) {
    team.run(static_cast<int>(slices_.size()), [&](int i) {
      slices_[static_cast<size_t>(i)].run({from, to});
    });
  }

 private:
  std::vector<PreparedPrimitive> slices_;
};

/// One thread's cut: its primitive, the offsets of its data, and its scratchpad.
struct Slice {
  PreparedPrimitive conv;
  int64_t x_offset = 0, y_offset = 0, scratch_offset = 0;
};

/// Calls prepare(cuts) with bands of rows if there are any and oneDNN supports them, else with
/// whole images.
template <typename F>
void prepare_cuts(const std::vector<ConvCut>& bands, const std::vector<ConvCut>& images,
                  const F& prepare) {
  if (!bands.empty()) {
    try {
      return prepare(bands);
    } catch (const dnnl::error&) {       // no kernel for some band
    } catch (const std::logic_error&) {  // two bands with different weight formats
    }
  }
  prepare(images);
}

}  // namespace

struct ConvForward::Impl {
  Team& team;
  std::unique_ptr<ColumnsForward> columns;  // if set, replaces the members below
  std::vector<Slice> slices;
  WeightReorder reorder_w;
  int64_t w_offset = 0;
  WorkspaceLayout workspace;

  Impl(const ConvDims& d, const ConvOptions& options, Team& t) : team(t) {
    const SingleThreadScope scope;
    const int threads = threads_of(d, team);
    if (columns_suit_forward(d, options)) {
      columns = std::make_unique<ColumnsForward>(d, options.bias, threads, team);
      return;
    }
    Desc w;
    prepare_cuts(options.channels_last ? cut_rows_of_y(d, threads) : std::vector<ConvCut>(),
                 cut_images(d, threads),
                 [&](const std::vector<ConvCut>& cuts) { w = prepare(d, options, cuts); });
    reorder_w = WeightReorder(d, plain_weights(d), w, team);
    if (reorder_w) w_offset = workspace.add(w);
  }

  /// Prepares the slices and returns the internal format of the weights.
  Desc prepare(const ConvDims& d, const ConvOptions& options, const std::vector<ConvCut>& cuts) {
    slices.clear();
    workspace = {};
    Desc w = any_weights(d);
    for (const ConvCut& cut : cuts) {
      const ConvSetup setup(cut.dims, options, w);
      const ForwardDesc& pd = setup.forward;
      if (slices.empty()) w = pd.weights_desc();
      check_same(w, pd.weights_desc());
      slices.push_back({PreparedPrimitive(), cut.x_offset, cut.y_offset});
      Slice& slice = slices.back();
      slice.scratch_offset = workspace.add(pd.scratchpad_desc());
      slice.conv = PreparedPrimitive(dnnl::convolution_forward(pd),
                                     {{DNNL_ARG_SRC, setup.x},
                                      {DNNL_ARG_WEIGHTS, w},
                                      {DNNL_ARG_BIAS, setup.b},
                                      {DNNL_ARG_DST, setup.y},
                                      {DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc()}});
    }
    return w;
  }
};

ConvForward::ConvForward(const ConvDims& d, const ConvOptions& options, Team& team)
    : impl_(std::make_unique<Impl>(d, options, team)) {}
ConvForward::~ConvForward() = default;
int64_t ConvForward::workspace_bytes() const {
  return impl_->columns ? impl_->columns->workspace_bytes() : impl_->workspace.size_bytes();
}

void ConvForward::run(const float* x, const float* w, const float* b, float* y, void* workspace) {
  Impl& m = *impl_;
  if (m.columns) return m.columns->run(x, w, b, y, workspace);
  const void* inner_w = w;
  if (m.reorder_w) {
    inner_w = at_offset(workspace, m.w_offset);
    m.reorder_w.run(m.team, w, at_offset(workspace, m.w_offset));
  }
  m.team.run(static_cast<int>(m.slices.size()), [&](int i) {
    Slice& s = m.slices[static_cast<size_t>(i)];
    s.conv.run(
        {x + s.x_offset, inner_w, b, y + s.y_offset, at_offset(workspace, s.scratch_offset)});
  });
}

struct ConvBackwardData::Impl {
  Team& team;
  std::unique_ptr<ColumnsBackwardData> columns;  // if set, replaces the members below
  std::vector<Slice> slices;
  WeightReorder reorder_w;
  int64_t w_offset = 0;
  WorkspaceLayout workspace;

  Impl(const ConvDims& d, const ConvOptions& options, Team& t) : team(t) {
    const SingleThreadScope scope;
    const int threads = threads_of(d, team);
    if (columns_suit_backward_data(d, options, threads)) {
      columns = std::make_unique<ColumnsBackwardData>(d, threads, team);
      return;
    }
    Desc w;
    prepare_cuts(options.channels_last ? cut_rows_of_x(d, threads) : std::vector<ConvCut>(),
                 cut_images(d, threads),
                 [&](const std::vector<ConvCut>& cuts) { w = prepare(d, options, cuts); });
    reorder_w = WeightReorder(d, plain_weights(d), w, team);
    if (reorder_w) w_offset = workspace.add(w);
  }

  /// Prepares the slices and returns the internal format of the weights.
  Desc prepare(const ConvDims& d, const ConvOptions& options, const std::vector<ConvCut>& cuts) {
    slices.clear();
    workspace = {};
    Desc w = any_weights(d);
    for (const ConvCut& cut : cuts) {
      const ConvSetup setup(cut.dims, options, any_weights(d));
      const dnnl::convolution_backward_data::primitive_desc pd(
          dnnl::convolution_backward_data::desc(kDirect, setup.x, w, setup.y, setup.strides,
                                                setup.dilates, setup.pads_begin, setup.pads_end),
          user_scratchpad(), onednn_engine(), setup.forward);
      if (slices.empty()) w = pd.weights_desc();
      check_same(w, pd.weights_desc());
      slices.push_back({PreparedPrimitive(), cut.x_offset, cut.y_offset});
      Slice& slice = slices.back();
      slice.scratch_offset = workspace.add(pd.scratchpad_desc());
      slice.conv = PreparedPrimitive(dnnl::convolution_backward_data(pd),
                                     {{DNNL_ARG_DIFF_DST, setup.y},
                                      {DNNL_ARG_WEIGHTS, w},
                                      {DNNL_ARG_DIFF_SRC, setup.x},
                                      {DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc()}});
    }
    return w;
  }
};

ConvBackwardData::ConvBackwardData(const ConvDims& d, const ConvOptions& options, Team& team)
    : impl_(std::make_unique<Impl>(d, options, team)) {}
ConvBackwardData::~ConvBackwardData() = default;
int64_t ConvBackwardData::workspace_bytes() const {
  return impl_->columns ? impl_->columns->workspace_bytes() : impl_->workspace.size_bytes();
}

void ConvBackwardData::run(const float* dy, const float* w, float* dx, void* workspace) {
  Impl& m = *impl_;
  if (m.columns) return m.columns->run(dy, w, dx, workspace);
  const void* inner_w = w;
  if (m.reorder_w) {
    inner_w = at_offset(workspace, m.w_offset);
    m.reorder_w.run(m.team, w, at_offset(workspace, m.w_offset));
  }
  m.team.run(static_cast<int>(m.slices.size()), [&](int i) {
    Slice& s = m.slices[static_cast<size_t>(i)];
    s.conv.run({dy + s.y_offset, inner_w, dx + s.x_offset, at_offset(workspace, s.scratch_offset)});
  });
}

// Each slice computes its own dw and db, which are then added in the order of the slices.
struct ConvBackwardWeights::Impl {
  Team& team;
  std::unique_ptr<ColumnsBackwardWeights> columns;  // if set, replaces the members below
  std::vector<Slice> slices;
  WeightReorder reorder_dw;
  int64_t dw_elements = 0;  // elements in the internal format, padding included
  int64_t K = 0;
  std::vector<int64_t> dw_offsets, db_offsets;
  WorkspaceLayout workspace;

  Impl(const ConvDims& d, const ConvOptions& options, Team& t) : team(t), K(d.K) {
    const SingleThreadScope scope;
    const int threads = threads_of(d, team);
    if (columns_suit_backward_weights(d, options)) {
      columns = std::make_unique<ColumnsBackwardWeights>(d, threads, team);
      return;
    }
    Desc dw;
    prepare_cuts(options.channels_last ? cut_rows_of_y(d, threads) : std::vector<ConvCut>(),
                 cut_images(d, threads),
                 [&](const std::vector<ConvCut>& cuts) { dw = prepare(d, options, cuts); });
    dw_elements = static_cast<int64_t>(dw.get_size()) / static_cast<int64_t>(sizeof(float));
    reorder_dw = WeightReorder(d, dw, plain_weights(d), team);
  }

  /// Prepares the slices and returns the internal format of dw.
  Desc prepare(const ConvDims& d, const ConvOptions& options, const std::vector<ConvCut>& cuts) {
    slices.clear();
    dw_offsets.clear();
    db_offsets.clear();
    workspace = {};
    Desc dw = any_weights(d);
    for (const ConvCut& cut : cuts) {
      const ConvSetup setup(cut.dims, options, any_weights(d));
      using Backward = dnnl::convolution_backward_weights;
      const auto desc = options.bias
                            ? Backward::desc(kDirect, setup.x, dw, setup.b, setup.y, setup.strides,
                                             setup.dilates, setup.pads_begin, setup.pads_end)
                            : Backward::desc(kDirect, setup.x, dw, setup.y, setup.strides,
                                             setup.dilates, setup.pads_begin, setup.pads_end);
      const Backward::primitive_desc pd(desc, user_scratchpad(), onednn_engine(), setup.forward);
      if (slices.empty()) dw = pd.diff_weights_desc();
      check_same(dw, pd.diff_weights_desc());
      slices.push_back({PreparedPrimitive(), cut.x_offset, cut.y_offset});
      Slice& slice = slices.back();
      slice.scratch_offset = workspace.add(pd.scratchpad_desc());
      dw_offsets.push_back(workspace.add(dw));
      db_offsets.push_back(workspace.add(setup.b));
      slice.conv = PreparedPrimitive(Backward(pd), {{DNNL_ARG_SRC, setup.x},
                                                    {DNNL_ARG_DIFF_DST, setup.y},
                                                    {DNNL_ARG_DIFF_WEIGHTS, dw},
                                                    {DNNL_ARG_DIFF_BIAS, setup.b},
                                                    {DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc()}});
    }
    return dw;
  }
};

ConvBackwardWeights::ConvBackwardWeights(const ConvDims& d, const ConvOptions& options, Team& team)
    : impl_(std::make_unique<Impl>(d, options, team)) {}
ConvBackwardWeights::~ConvBackwardWeights() = default;
int64_t ConvBackwardWeights::workspace_bytes() const {
  return impl_->columns ? impl_->columns->workspace_bytes() : impl_->workspace.size_bytes();
}

void ConvBackwardWeights::run(const float* x, const float* dy, float* dw, float* db,
                              void* workspace) {
  Impl& m = *impl_;
  if (m.columns) return m.columns->run(x, dy, dw, db, workspace);
  const auto parts = m.slices.size();
  const auto part_dw = [&](size_t i) -> float* {
    // The first slice writes directly to the result if no reorder follows.
    return i == 0 && !m.reorder_dw ? dw
                                   : static_cast<float*>(at_offset(workspace, m.dw_offsets[i]));
  };
  const auto part_db = [&](size_t i) -> float* {
    if (db == nullptr) return nullptr;
    return i == 0 ? db : static_cast<float*>(at_offset(workspace, m.db_offsets[i]));
  };
  m.team.run(static_cast<int>(parts), [&](int i) {
    const auto index = static_cast<size_t>(i);
    Slice& s = m.slices[index];
    s.conv.run({x + s.x_offset, dy + s.y_offset, part_dw(index), part_db(index),
                at_offset(workspace, s.scratch_offset)});
  });
  for (size_t i = 1; i < parts; ++i) {
    m.team.parallel_for(m.dw_elements, kElementsPerThread, [&](int64_t begin, int64_t end) {
      float* sum = part_dw(0) + begin;
      elementwise_loops().add(end - begin, sum, part_dw(i) + begin, sum);
    });
    if (db != nullptr) elementwise_loops().add(m.K, db, part_db(i), db);
  }
  if (m.reorder_dw) m.reorder_dw.run(m.team, part_dw(0), dw);
}

}  // namespace trainyard::kernels::cpu
