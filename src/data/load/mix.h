// src/data/load/mix.h: training images that are mixed with others of their batch, and their classes
// with theirs.
//
//   mixup   x'[n] = l x[n] + (1 - l) x[n-1]                                l ~ Beta(alpha, alpha)
//   cutmix  x'[n] is x[n], but for a rectangle of x[n-1]: its center (cx, cy) lies anywhere, its
//           sides are 2 [W r] and 2 [H r], r = sqrt(1 - l) / 2, cut off at the edges. l becomes the
//           share of the pixels that are not in it.
//   t[n,k]  = l [k == label[n]] + (1 - l) [k == label[n-1]]
//
// The partner is the row before it in the batch, the first one's is the last: batches are drawn
// anew in every epoch, so it is any other image. One l for the whole batch. Of several mixings each
// batch takes one, with equal chance. As torchvision's v2.MixUp, v2.CutMix and v2.RandomChoice.
//
// What is drawn depends on (seed, step) and the list alone: never on threads or micro-batches.
//
// Sources: Zhang et al., "mixup: Beyond Empirical Risk Minimization" (2018); Yun et al., "CutMix:
// Regularization Strategy to Train Strong Classifiers with Localizable Features" (2019).
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "src/tensor/shape.h"

namespace trainyard {

struct Mixup {
  double alpha = 0.2;
};
struct Cutmix {
  double alpha = 1;
};
using Mixing = std::variant<Mixup, Cutmix>;

/// Rows [top, bottom) and columns [left, right).
struct MixBox {
  int64_t top = 0, left = 0, bottom = 0, right = 0;
};

/// The rectangle around (x, y) that leaves the share l of an image, cut off at the edges.
MixBox cut_box(double share, int64_t x, int64_t y, int64_t height, int64_t width);

/// What was drawn for a batch.
struct MixDraw {
  bool cuts = false;
  double share = 1;  // l, of cutmix before the rectangle is cut off
  MixBox box = {};   // of cutmix
};

/// A draw from Beta(alpha, alpha): the share of one of two Gamma(alpha, 1) in their sum, by
/// Marsaglia & Tsang, "A simple method for generating gamma variables" (2000), for alpha below 1
/// with their factor U^(1/alpha); in logarithms, so that small alphas do not become 0 / 0. The
/// numbers are those of the stream from `next` on, which is moved behind them.
double draw_beta(double alpha, uint64_t seed, uint32_t stream, uint64_t step, uint64_t& next);

/// Const and thread-safe after construction.
class Mixer {
 public:
  /// Does nothing.
  Mixer() = default;
  /// `image` is [C, H, W].
  Mixer(std::vector<Mixing> list, const Shape& image, int64_t classes);
  bool empty() const { return list_.empty(); }

  MixDraw draw(uint64_t seed, int64_t step) const;

  /// Mixes the images [N, C, H, W] in place and returns l.
  double mix_images(const MixDraw& draw, std::span<float> images) const;
  /// t [N, K]. `labels` become the classes with the larger shares, the own ones of equal shares.
  std::vector<float> mix_labels(double share, std::span<int32_t> labels) const;

 private:
  std::vector<Mixing> list_;
  int64_t channels_ = 0, height_ = 0, width_ = 0, classes_ = 0;
};

}  // namespace trainyard
