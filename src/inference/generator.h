// src/inference/generator.h: a language model that continues a text, token by token.
//
//   prompt -> tokens -> [window of the last T tokens] -> logits of the newest -> drawn token -> ...
//
// The model sees at most T tokens, its context length; a longer text slides through this window.
// Every token needs a forward pass over the whole window: there is no cache of keys and values.
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

/// How a token is drawn from logits. They are divided by the temperature, then all but the `top_k`
/// largest are dropped, then all but the fewest whose probabilities reach `top_p`. The token is
/// drawn from the rest.
struct Sampling {
  double temperature = 1;  // >= 0; 0: always the likeliest (greedy)
  int64_t top_k = 0;       // 0: all tokens
  double top_p = 1;        // (0, 1]
  uint64_t seed = 0;
};
/// Draws a token with random number `index` of the seed: equal calls return the same token. Ties go
/// to the smaller ID. A logit of -infinity is never drawn; at least one logit must be finite.
int32_t draw_token(std::span<const float> logits, const Sampling& sampling, int64_t index);

/// Error: FIELD_OUT_OF_RANGE with the name of the field: temperature, top_k or top_p.
Status check_sampling(const Sampling& sampling);

class Generator {
 public:
  /// Errors: FAILED_PRECONDITION/GENERATE_UNSUPPORTED if the model does not continue text, and
  /// those of read_model().
  static Result<std::unique_ptr<Generator>> open(const std::filesystem::path& model,
                                                 Backend& backend);
  virtual ~Generator() = default;

  /// Calls `on_text` for each new token, in order, with the text that the token adds. The text is
  /// well-formed UTF-8: bytes of an incomplete character are kept back, and invalid bytes become
  /// U+FFFD. A byte model's output is passed unchanged. INVALID_ARGUMENT/PROMPT_INVALID if the
  /// prompt is empty, is not UTF-8, or has characters that the model does not know; CANCELLED after
  /// `stop`.
  virtual Status generate(std::string_view prompt, int64_t tokens, const Sampling& sampling,
                          std::stop_token stop,
                          const std::function<void(std::string_view)>& on_text) = 0;
};

}  // namespace trainyard
