#include "src/inference/generator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "src/artifact/model_artifact.h"
#include "src/base/philox.h"
#include "src/base/text.h"
#include "src/data/text/tokenizer.h"
#include "src/inference/inference.h"

namespace trainyard {
namespace {

constexpr uint32_t kStream = stream_of("generate");

/// Returns a uniformly distributed number in [0, 1) with the full precision of a double.
double uniform(uint64_t seed, int64_t index) {
  const math::Philox4 block = math::philox_block(seed, kStream, 0, static_cast<uint64_t>(index));
  const uint64_t bits = (uint64_t{block.v[0]} << 32 | block.v[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

Error prompt_error(const std::string& description) {
  return field_error("PROMPT_INVALID", "prompt", description);
}

/// Keeps back the bytes of a character until it is complete, since a subword model may generate a
/// character byte by byte. Bytes that cannot form a character become U+FFFD.
class Utf8Gate {
 public:
  /// If `shut` is false, all bytes pass unchanged and immediately.
  explicit Utf8Gate(bool shut) : shut_(shut) {}

  std::string pass(std::string_view bytes, bool last) {
    if (!shut_) return std::string(bytes);
    pending_ += bytes;
    std::string text;
    while (const std::optional<size_t> bad = find_invalid_utf8(pending_)) {
      text.append(pending_, 0, *bad);
      pending_.erase(0, *bad);
      if (!last && may_become_a_character(pending_)) return text;
      append_utf8(text, U'\ufffd');
      pending_.erase(0, 1);
    }
    return text + std::exchange(pending_, {});
  }

 private:
  /// Returns whether `bytes` begin a well-formed character that further bytes would complete.
  static bool may_become_a_character(std::string_view bytes) {
    for (const char second : {'\x80', '\x90', '\xa0'}) {
      std::string whole(bytes);
      while (whole.size() < 4) {
        whole += whole.size() == 1 ? second : '\x80';
        if (is_utf8(whole)) return true;
      }
    }
    return false;
  }

  const bool shut_;
  std::string pending_;
};

class LoadedGenerator final : public Generator {
 public:
  LoadedGenerator(const TextSchema& text, int64_t context, std::unique_ptr<Inference> inference)
      : text_(text),
        tokenizer_(make_tokenizer(text)),
        texts_(token_texts(text)),
        inference_(std::move(inference)),
        window_(static_cast<size_t>(context)),
        logits_(static_cast<size_t>(text.vocabulary_size())) {}

  Status generate(std::string_view prompt, int64_t tokens, const Sampling& sampling,
                  std::stop_token stop,
                  const std::function<void(std::string_view)>& on_text) override {
    if (Status s = check_sampling(sampling); !s.ok()) return s;
    ASSIGN_OR_RETURN(std::vector<int32_t> text, encode(prompt));
    // Only byte models may generate something other than text.
    Utf8Gate gate(text_.tokenizer != TokenizerKind::kByte);
    for (int64_t i = 0; i < tokens; ++i) {
      if (stop.stop_requested()) {
        return make_error(ErrorCode::kCancelled, "CANCELLED", "stopped before the end");
      }
      score_next(text);
      const int32_t token = draw_token(logits_, sampling, i);
      text.push_back(token);
      on_text(gate.pass(texts_[static_cast<size_t>(token)], i + 1 == tokens));
    }
    return {};
  }

 private:
  Result<std::vector<int32_t>> encode(std::string_view prompt) const {
    if (prompt.empty()) return prompt_error("is empty, expected the text to continue");
    if (text_.tokenizer != TokenizerKind::kByte && !is_utf8(prompt)) {
      return prompt_error("is not UTF-8");
    }
    std::vector<int32_t> tokens;
    tokenizer_->encode(prompt, std::ssize(prompt), tokens);
    const auto unknown = std::ranges::find(tokens, static_cast<int32_t>(text_.unknown_id()));
    if (unknown != tokens.end()) {
      for (auto i = tokens.begin(); i != unknown; ++i) (void)take_code_point(prompt);
      std::string character;
      append_utf8(character, take_code_point(prompt));
      return prompt_error("the training text did not contain " + quoted_value(character));
    }
    return tokens;
  }

  /// Computes the logits of the token after `text`. The last tokens of `text` are at the start of
  /// the window; a causal model ignores the positions after them.
  void score_next(const std::vector<int32_t>& text) {
    const size_t seen = std::min(text.size(), window_.size());
    std::copy(text.end() - static_cast<std::ptrdiff_t>(seen), text.end(), window_.begin());
    std::fill(window_.begin() + static_cast<std::ptrdiff_t>(seen), window_.end(), text.back());
    inference_->run(std::as_bytes(std::span(window_)));
    const auto vocabulary = std::ssize(logits_);
    inference_->read_output(logits_, (static_cast<int64_t>(seen) - 1) * vocabulary);
    for (size_t id = 0; id < logits_.size();
         ++id) {  // padding and the unknown token have no text, so they are never drawn
      if (texts_[id].empty()) logits_[id] = -std::numeric_limits<float>::infinity();
    }
  }

  const TextSchema text_;
  const std::unique_ptr<const Tokenizer> tokenizer_;
  const std::vector<std::string> texts_;  // by token
  const std::unique_ptr<Inference> inference_;
  std::vector<int32_t> window_;
  std::vector<float> logits_;
};

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
  return {};
}

int32_t draw_token(std::span<const float> logits, const Sampling& sampling, int64_t index) {
  if (sampling.temperature == 0 || sampling.top_k == 1) {
    return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
  }
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::ranges::sort(order, likelier);
  if (sampling.top_k > 0 && sampling.top_k < std::ssize(order)) {
    order.resize(static_cast<size_t>(sampling.top_k));
  }
  const double top = static_cast<double>(logits[static_cast<size_t>(order[0])]);
  std::vector<double> sums;  // running sums of the probabilities, not yet normalized
  double sum = 0;
  for (const int32_t token : order) {
    const double logit = static_cast<double>(logits[static_cast<size_t>(token)]);
    sum += std::exp((logit - top) / sampling.temperature);
    sums.push_back(sum);
  }
  // Keeps the fewest tokens whose probabilities reach top_p together.
  const auto last = std::ranges::lower_bound(sums, sampling.top_p * sum);
  const double kept = last == sums.end() ? sum : *last;
  const double drawn = uniform(sampling.seed, index) * kept;
  const auto at =
      std::min(std::ranges::upper_bound(sums, drawn), std::ranges::lower_bound(sums, kept)) -
      sums.begin();
  return order[static_cast<size_t>(at)];
}

Result<std::unique_ptr<Generator>> Generator::open(const std::filesystem::path& folder,
                                                   Backend& backend) {
  ASSIGN_OR_RETURN(LoadedModel loaded, read_model(folder));
  const ModelInfo& info = loaded.info;
  if (!info.schema.stream()) {
    return make_error(ErrorCode::kFailedPrecondition, "GENERATE_UNSUPPORTED",
                      "the model does not continue text: it predicts " +
                          quoted_value(info.schema.target.name) + " of rows");
  }
  const int64_t context = info.preprocessing.context_length;
  ASSIGN_OR_RETURN(BoundProgram bound, compile_inference(info.model, info.interface(), 1, nullptr,
                                                         info.precision, {}, backend.traits()));
  ASSIGN_OR_RETURN(std::unique_ptr<Inference> inference,
                   Inference::open(std::move(bound), loaded.weights, backend));
  return std::unique_ptr<Generator>(
      std::make_unique<LoadedGenerator>(info.schema.text, context, std::move(inference)));
}

}  // namespace trainyard
