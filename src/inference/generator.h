// src/inference/generator.h: a language model that continues texts, token by token.
//
//   prompt -> tokens -> scores of the next one (text_model.h) -> drawn token (sampling.h) -> ...
//          -> text, until it stops (text_output.h)
//
// A model that was trained on one long text slides: of a text longer than its context it sees the
// last tokens. A model of documents or chats stops at the end of its context.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/inference/prompt.h"
#include "src/inference/sampling.h"
#include "src/runtime/backend.h"

namespace trainyard {

inline constexpr size_t kPromptsMax = 16;      // of one call
inline constexpr size_t kStopStringsMax = 16;  // of one call
inline constexpr size_t kStopStringBytesMax = 256;

struct GenerateOptions {
  int64_t tokens = 256;  // the most that are added to each prompt
  Sampling sampling = {};
  std::vector<std::string> stop = {};  // a text ends before the first of these
  bool ignore_end = false;             // true: the model's end tokens do not end a text
};
/// Error: FIELD_OUT_OF_RANGE or FIELD_REQUIRED with the name of the field.
Status check_generate(const GenerateOptions& options);

enum class Finish : uint8_t {
  kNone,        // the text goes on
  kEnd,         // the model has ended the text with an end token
  kStopString,  // one of `stop` came; it is not part of the text
  kLength,      // `tokens` were added
  kContext,     // the model sees no longer text
};

/// A part of a continuation.
struct Continuation {
  int64_t prompt = 0;         // index of its prompt
  std::string_view text;      // what the token adds; maybe empty
  int64_t tokens = 0;         // added to the prompt so far, without an end token
  int64_t prompt_tokens = 0;  // of the prompt
  Finish finish = Finish::kNone;
};

class Generator {
 public:
  /// Errors: FAILED_PRECONDITION/GENERATE_UNSUPPORTED if the model does not continue text, and
  /// those of read_model().
  static Result<std::unique_ptr<Generator>> open(const std::filesystem::path& model,
                                                 Backend& backend);
  virtual ~Generator() = default;

  /// Continues all prompts together. Calls `on_text` for each new token, in the order of the
  /// tokens, and once more for an end token. The last part of each prompt says why it ends. Text is
  /// well-formed UTF-8: bytes of an incomplete character are kept back, and invalid bytes become
  /// U+FFFD. A byte model's output is passed unchanged. INVALID_ARGUMENT/PROMPT_INVALID if a prompt
  /// is empty, is not UTF-8 or has characters that the model does not know; PROMPT_TOO_LONG;
  /// the errors of check_generate() and of a chat's template; CANCELLED after `stop`.
  virtual Status generate(std::span<const Prompt> prompts, const GenerateOptions& options,
                          const std::stop_token& stop,
                          const std::function<void(const Continuation&)>& on_text) = 0;
};

}  // namespace trainyard
