// src/inference/sampling.h: how the next token is drawn from a language model's scores.
//
//   scores -> repetition penalty -> / temperature -> top_k -> top_p -> min_p -> drawn
//
// Order and meaning are those of transformers' logits processors.
//
// Sources: top-k, Fan, Lewis, Dauphin, "Hierarchical Neural Story Generation" (ACL 2018); top-p
// (nucleus), Holtzman et al., "The Curious Case of Neural Text Degeneration" (ICLR 2020); min-p,
// Nguyen et al., "Turning Up the Heat" (2024); repetition penalty, Keskar et al., "CTRL" (2019).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/base/result.h"

namespace trainyard {

struct Sampling {
  double temperature = 1;  // >= 0; 0: always the likeliest (greedy)
  int64_t top_k = 0;       // only the k likeliest tokens; 0: all
  double top_p = 1;        // (0, 1]: of these the fewest whose probabilities reach p
  double min_p = 0;  // [0, 1]: of these the tokens at least p times as likely as the likeliest
  // Above 0: divides the positive scores of tokens that the text already has, prompt included, and
  // multiplies the negative ones. 1: no penalty.
  double repetition_penalty = 1;
  uint64_t seed = 0;
};

/// Error: FIELD_OUT_OF_RANGE with the name of the field: temperature, top_k, top_p, min_p or
/// repetition_penalty.
Status check_sampling(const Sampling& sampling);

/// A token and its probability among those from which it is drawn.
struct Candidate {
  int32_t token = 0;
  double probability = 0;
};
/// Returns the tokens that may be drawn, the likeliest first, ties by smaller ID. `seen[token]`:
/// the text has the token. A score of -infinity is never drawn; at least one score must be finite.
std::vector<Candidate> candidates(std::span<const float> scores, const std::vector<bool>& seen,
                                  const Sampling& sampling);

/// Draws a token with random number `index` of stream `row` of the seed: equal calls return the
/// same token.
int32_t draw_token(std::span<const float> scores, const std::vector<bool>& seen,
                   const Sampling& sampling, int64_t row, int64_t index);

}  // namespace trainyard
