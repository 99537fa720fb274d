#include "src/inference/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "src/base/philox.h"
#include "src/base/text.h"

namespace trainyard {
namespace {

constexpr uint32_t kStream = stream_of("generate");
constexpr double kPenaltyMax = 100;

/// Returns a uniformly distributed number in [0, 1) with the full precision of a double.
double uniform(uint64_t seed, int64_t row, int64_t index) {
  const math::Philox4 block =
      math::philox_block(seed, kStream, static_cast<uint64_t>(row), static_cast<uint64_t>(index));
  const uint64_t bits = (uint64_t{block.v[0]} << 32 | block.v[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

/// A token's score after the penalty.
struct Scored {
  int32_t token = 0;
  float score = 0;
};
bool likelier(const Scored& a, const Scored& b) {
  return a.score != b.score ? a.score > b.score : a.token < b.token;
}
bool less_likely(const Scored& a, const Scored& b) { return likelier(b, a); }

std::vector<Scored> penalized(std::span<const float> scores, const std::vector<bool>& seen,
                              double penalty) {
  std::vector<Scored> all;
  all.reserve(scores.size());
  const auto factor = static_cast<float>(penalty);
  for (size_t i = 0; i < scores.size(); ++i) {
    float score = scores[i];
    if (score == -std::numeric_limits<float>::infinity()) continue;
    if (penalty != 1 && i < seen.size() && seen[i]) {
      score = score < 0 ? score * factor : score / factor;
    }
    all.push_back({static_cast<int32_t>(i), score});
  }
  return all;
}

/// Takes tokens from a heap, the likeliest first, so that only those that may be drawn are sorted.
class Likeliest {
 public:
  explicit Likeliest(std::vector<Scored> all) : heap_(std::move(all)) {
    std::ranges::make_heap(heap_, less_likely);
  }
  bool empty() const { return heap_.empty(); }
  Scored take() {
    std::ranges::pop_heap(heap_, less_likely);
    const Scored best = heap_.back();
    heap_.pop_back();
    return best;
  }

 private:
  std::vector<Scored> heap_;
};

/// The tokens that top_k keeps. Their weights are their probabilities divided by the largest one.
struct Weights {
  std::vector<Scored> kept;  // after top_k, in any order
  double top = 0;            // the largest score
  double temperature = 1;
  double sum = 0;  // of the weights of `kept`
  double of(const Scored& s) const {
    return std::exp((static_cast<double>(s.score) - top) / temperature);
  }
};

Weights weights_of(std::span<const float> scores, const std::vector<bool>& seen,
                   const Sampling& sampling) {
  Weights w;
  w.kept = penalized(scores, seen, sampling.repetition_penalty);
  w.temperature = sampling.temperature;
  const bool greedy = sampling.temperature == 0 || sampling.top_k == 1;
  const int64_t top_k = greedy ? 1 : sampling.top_k;
  if (top_k > 0 && top_k < std::ssize(w.kept)) {
    std::ranges::nth_element(w.kept, w.kept.begin() + top_k - 1, likelier);
    w.kept.resize(static_cast<size_t>(top_k));
  }
  if (greedy) w.temperature = 1;
  w.top = static_cast<double>(std::ranges::min_element(w.kept, likelier)->score);
  for (const Scored& s : w.kept) w.sum += w.of(s);
  return w;
}

}  // namespace

Status check_sampling(const Sampling& s) {
  const auto refuse = [](const char* field, double value, const char* expected) -> Status {
    return field_error("FIELD_OUT_OF_RANGE", field, short_number(value) + ", expected " + expected);
  };
  if (!(s.temperature >= 0 && s.temperature <= 100)) {
    return refuse("temperature", s.temperature, "0 (the most probable token) to 100");
  }
  if (s.top_k < 0) {
    return refuse("top_k", static_cast<double>(s.top_k),
                  "0 (all tokens) or the number of tokens to sample from");
  }
  if (!(s.top_p > 0 && s.top_p <= 1)) return refuse("top_p", s.top_p, "above 0 to 1 (all tokens)");
  if (!(s.min_p >= 0 && s.min_p <= 1)) {
    return refuse("min_p", s.min_p, "0 (all tokens) to 1 (only the most probable token)");
  }
  if (!(s.repetition_penalty > 0 && s.repetition_penalty <= kPenaltyMax)) {
    return refuse("repetition_penalty", s.repetition_penalty,
                  "above 0 to 100; 1 is no penalty, more avoids repetitions");
  }
  return {};
}

std::vector<Candidate> candidates(std::span<const float> scores, const std::vector<bool>& seen,
                                  const Sampling& sampling) {
  Weights w = weights_of(scores, seen, sampling);
  const double reach =
      sampling.top_p < 1 ? sampling.top_p * w.sum : std::numeric_limits<double>::infinity();
  Likeliest likeliest(w.kept);
  std::vector<Candidate> kept;
  double sum = 0;
  while (!likeliest.empty() && (kept.empty() || sum < reach)) {
    const Scored s = likeliest.take();
    const double weight = w.of(s);
    if (!kept.empty() && weight < sampling.min_p) break;
    kept.push_back({s.token, weight});
    sum += weight;
  }
  for (Candidate& c : kept) c.probability /= sum;
  return kept;
}

int32_t draw_token(std::span<const float> scores, const std::vector<bool>& seen,
                   const Sampling& sampling, int64_t row, int64_t index) {
  const double drawn = uniform(sampling.seed, row, index);
  if (sampling.top_p < 1 || sampling.min_p > 0) {
    const std::vector<Candidate> kept = candidates(scores, seen, sampling);
    double sum = 0;
    for (const Candidate& c : kept) {
      sum += c.probability;
      if (drawn < sum) return c.token;
    }
    return kept.back().token;
  }
  // All tokens that top_k keeps may be drawn: their sum is known, so that tokens are sorted only up
  // to the drawn one.
  Weights w = weights_of(scores, seen, sampling);
  Likeliest likeliest(std::move(w.kept));
  double sum = 0;
  while (true) {
    const Scored s = likeliest.take();
    sum += w.of(s);
    if (drawn * w.sum < sum || likeliest.empty()) return s.token;
  }
}

}  // namespace trainyard
