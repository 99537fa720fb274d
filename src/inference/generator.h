// src/inference/generator.h: a language model that continues a text, token by token.
//
//   prompt -> tokens -> [window of the last T tokens] -> logits of the newest -> drawn token -> ...
//
// The model sees at most its context of T tokens; a longer text moves through it. Every token is a
// forward pass over the whole window: keys and values of earlier positions are not kept.
//
// Sources: top-k, Fan, Lewis, Dauphin, "Hierarchical Neural Story Generation" (ACL 2018); top-p
// (nucleus), Holtzman et al., "The Curious Case of Neural Text Degeneration" (ICLR 2020).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "src/base/result.h"
#include "src/runtime/backend.h"

namespace trainyard {

/// How a token is drawn from logits: they are divided by the temperature, then all but the top k
/// are dropped, then all but the fewest whose probabilities reach p; what is left is drawn from.
struct Sampling {
  double temperature = 1;  // >= 0; 0: always the likeliest (greedy)
  int64_t top_k = 0;       // 0: all
  double top_p = 1;        // (0, 1]
  uint64_t seed = 0;
};
/// Draw number `index` of the seed: the same call gives the same token. Ties go to the smaller id.
/// A logit of -infinity is never drawn; at least one is finite.
int32_t draw_token(std::span<const float> logits, const Sampling& sampling, int64_t index);

/// FIELD_OUT_OF_RANGE naming temperature, top_k or top_p.
Status check_sampling(const Sampling& sampling);

class Generator {
 public:
  /// FAILED_PRECONDITION/GENERATE_UNSUPPORTED if the model does not continue text, and the
  /// refusals of read_model.
  static Result<std::unique_ptr<Generator>> open(const std::filesystem::path& model,
                                                 Backend& backend);
  virtual ~Generator() = default;

  /// Calls on_text for each new token, in order, with what it adds to the text. It is well-formed
  /// UTF-8: bytes of a character wait for the others, and what becomes none is U+FFFD. Those of a
  /// byte model come as they are. INVALID_ARGUMENT/PROMPT_INVALID for an empty prompt, one that is
  /// not UTF-8 or one with characters that the model does not know; CANCELLED after `stop`.
  virtual Status generate(std::string_view prompt, int64_t tokens, const Sampling& sampling,
                          std::stop_token stop,
                          const std::function<void(std::string_view)>& on_text) = 0;
};

}  // namespace trainyard
