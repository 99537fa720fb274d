// src/data/load/mix.h: mixes training images with others of their batch, and their classes with the
// others' classes.
//
//   mixup   x'[n] = l x[n] + (1 - l) x[n-1]                                l ~ Beta(alpha, alpha)
//   cutmix  x'[n] = x[n], except for a rectangle that is copied from x[n-1]. Its center (cx, cy) is
//           anywhere, its sides are 2 [W r] and 2 [H r], r = sqrt(1 - l) / 2, clipped at the edges.
//           l then becomes the share of the pixels outside of it.
//   t[n,k]  = l [k == label[n]] + (1 - l) [k == label[n-1]]
//
// Each row's partner is the row before it in the batch; that of the first row is the last one.
// Since every epoch has new batches, any other image may be the partner. A whole batch has the same
// l. If there are several mixings, each batch uses one of them with equal probability, as with
// torchvision's v2.MixUp, v2.CutMix and v2.RandomChoice.
//
// The random numbers depend only on (seed, step) and the list, never on threads or micro-batches.
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

/// Returns the rectangle around (x, y) outside of which is the share l of an image's pixels,
/// clipped at the edges.
MixBox cut_box(double share, int64_t x, int64_t y, int64_t height, int64_t width);

/// The random choice for a batch.
struct MixDraw {
  bool cuts = false;  // cutmix instead of mixup
  double share = 1;   // l; for cutmix before the rectangle is clipped
  MixBox box = {};    // for cutmix
};

/// Returns a random number from Beta(alpha, alpha): X / (X + Y) for X and Y from Gamma(alpha, 1).
/// These are drawn as in Marsaglia & Tsang, "A simple method for generating gamma variables"
/// (2000), with their factor U^(1/alpha) for alpha below 1. Computes with logarithms, so that a
/// small alpha does not give 0 / 0. Uses the numbers of the stream from index `next` on and
/// advances `next`.
double draw_beta(double alpha, uint64_t seed, uint32_t stream, uint64_t step, uint64_t& next);

/// Const and thread-safe after construction.
class Mixer {
 public:
  /// A mixer that changes nothing.
  Mixer() = default;
  /// `image` is [C, H, W].
  Mixer(std::vector<Mixing> list, const Shape& image, int64_t classes);
  bool empty() const { return list_.empty(); }

  MixDraw draw(uint64_t seed, int64_t step) const;

  /// Mixes the images [N, C, H, W] in place and returns l.
  double mix_images(const MixDraw& draw, std::span<float> images) const;
  /// Returns t [N, K]. Replaces each of `labels` by the partner's class if its share is larger.
  std::vector<float> mix_labels(double share, std::span<int32_t> labels) const;

 private:
  std::vector<Mixing> list_;
  int64_t channels_ = 0, height_ = 0, width_ = 0, classes_ = 0;
};

}  // namespace trainyard
