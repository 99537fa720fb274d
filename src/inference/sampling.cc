#include "src/inference/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

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

bool is_greedy(const Sampling& s) { return s.temperature == 0 || s.top_k == 1; }

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

/// Returns the likeliest token.
int32_t find_likeliest(std::span<const float> scores, const std::vector<bool>& seen,
                       double penalty) {
  if (penalty != 1) {
    const std::vector<Scored> all = penalized(scores, seen, penalty);
    return std::ranges::min_element(all, likelier)->token;
  }
  return static_cast<int32_t>(std::ranges::max_element(scores) - scores.begin());
}

/// Takes tokens, the likeliest first. Only tokens that are taken are sorted, by a heap: at first of
/// those with more than `likely` as their score, since the others are seldom taken.
class Likeliest {
 public:
  Likeliest(std::vector<Scored> all, double likely) : all_(std::move(all)) {
    const auto others = std::ranges::partition(
        all_, [&](const Scored& s) { return static_cast<double>(s.score) > likely; });
    heap_ = {all_.begin(), others.begin()};
    others_ = {others.begin(), others.end()};
    std::ranges::make_heap(heap_, less_likely);
    if (heap_.empty()) begin_others();
  }
  Likeliest(const Likeliest&) = delete;
  bool empty() const { return heap_.empty(); }
  Scored take() {
    std::ranges::pop_heap(heap_, less_likely);
    const Scored best = heap_.back();
    heap_ = heap_.first(heap_.size() - 1);
    if (heap_.empty()) begin_others();
    return best;
  }

 private:
  void begin_others() {
    heap_ = std::exchange(others_, {});
    std::ranges::make_heap(heap_, less_likely);
  }

  std::vector<Scored> all_;
  std::span<Scored> heap_, others_;
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
  /// The score of a token that is drawn once when the likeliest one is drawn 3,000 times.
  double likely() const { return top - 8 * temperature; }
};

Weights weights_of(std::span<const float> scores, const std::vector<bool>& seen,
                   const Sampling& sampling) {
  Weights w;
  w.kept = penalized(scores, seen, sampling.repetition_penalty);
  w.temperature = is_greedy(sampling) ? 1 : sampling.temperature;
  const int64_t top_k = is_greedy(sampling) ? 1 : sampling.top_k;
  if (top_k > 0 && top_k < std::ssize(w.kept)) {
    std::ranges::nth_element(w.kept, w.kept.begin() + top_k - 1, likelier);
    w.kept.resize(static_cast<size_t>(top_k));
  }
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
  Likeliest likeliest(std::move(w.kept), w.likely());
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
  if (is_greedy(sampling)) return find_likeliest(scores, seen, sampling.repetition_penalty);
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
  Likeliest likeliest(std::move(w.kept), w.likely());
  double sum = 0;
  while (true) {
    const Scored s = likeliest.take();
    sum += w.of(s);
    if (drawn * w.sum < sum || likeliest.empty()) return s.token;
  }
}

}  // namespace trainyard
