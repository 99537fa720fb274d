#include "src/inference/generator.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <utility>

#include "src/artifact/model_artifact.h"
#include "src/base/check.h"
#include "src/base/text.h"
#include "src/inference/prompt_reader.h"
#include "src/inference/text_model.h"
#include "src/inference/text_output.h"
#include "src/inference/weight_storage.h"
#include "src/planning/generation_programs.h"

namespace trainyard {
namespace {

// The keys and values of so many tokens are kept at least, so that a chat that becomes longer does
// not load the model again. Memory that no token has used costs nothing on the host.
constexpr int64_t kCapacityLeast = 4096;
constexpr int64_t kCapacityLeastOfSeveral = 256;

/// Returns the most tokens of a text that the model sees. A pretrained model knows more positions
/// than the rows have on which it was trained here.
int64_t context_of(const ModelInfo& info, bool slides) {
  const int64_t trained = info.preprocessing.context_length;
  return slides ? trained : std::max(trained, info.model.parameters.get_int("positions_max", 0));
}

/// A text that is being continued.
struct Row {
  Row(bool whole_characters, const std::vector<std::string>& stop)
      : gate(whole_characters), filter(stop) {}
  std::vector<bool> seen;  // by token: whether the text has it
  Utf8Gate gate;
  StopFilter filter;
  Continuation next;  // without its text
};

class LoadedGenerator final : public Generator {
 public:
  LoadedGenerator(LoadedModel model, Backend& backend)
      : model_(std::move(model)),
        backend_(backend),
        reader_(model_.info),
        storage_(find_weight_storage(model_)),
        context_(context_of(model_.info, reader_.slides())) {}

  /// Opens the model for so many texts of so many tokens, if it is not yet.
  Status reserve(int64_t rows, int64_t tokens) {
    const bool fits = slides() || tokens <= capacity_;
    if (text_model_ != nullptr && text_model_->rows() == rows && fits) return {};
    text_model_.reset();  // first, since both may not fit into memory
    const auto wanted = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(tokens)));
    const int64_t least = rows == 1 ? kCapacityLeast : kCapacityLeastOfSeveral;
    capacity_ = slides() ? context_ : std::min(context_, std::max(wanted, least));
    auto kept = open_kept_text_model(model_, rows, capacity_, storage_, backend_);
    if (!kept.ok() && kept.error().reason == kGenerationUnsupported) {
      kept = open_window_text_model(model_, rows, backend_);
    }
    if (!kept.ok()) return kept.error();
    text_model_ = std::move(*kept);
    scores_.resize(static_cast<size_t>(text_model_->scores()));
    hidden_.clear();
    for (size_t id = 0; id < scores_.size(); ++id) {
      if (!reader_.may_draw(static_cast<int64_t>(id))) hidden_.push_back(id);
    }
    return {};
  }

  Status generate(std::span<const Prompt> prompts, const GenerateOptions& options,
                  const std::stop_token& stop,
                  const std::function<void(const Continuation&)>& on_text) override {
    if (Status s = check_generate(options); !s.ok()) return s;
    TRAINYARD_CHECK(!prompts.empty() && prompts.size() <= kPromptsMax, "the number of prompts");
    std::vector<std::vector<int32_t>> texts;
    std::vector<Row> rows;
    int64_t longest = 0;
    for (size_t i = 0; i < prompts.size(); ++i) {
      ASSIGN_OR_RETURN(std::vector<int32_t> tokens, reader_.read(prompts[i]));
      if (Status s = check_length(std::ssize(tokens)); !s.ok()) return s;
      Row& row = rows.emplace_back(reader_.whole_characters(), options.stop);
      row.seen.resize(static_cast<size_t>(reader_.vocabulary_size()));
      for (const int32_t t : tokens) row.seen[static_cast<size_t>(t)] = true;
      row.next.prompt = static_cast<int64_t>(i);
      row.next.prompt_tokens = std::ssize(tokens);
      longest = std::max(longest, std::ssize(tokens));
      texts.push_back(std::move(tokens));
    }
    const int64_t most = std::min(context_, longest + options.tokens);
    if (Status s = reserve(std::ssize(texts), std::max(most, longest)); !s.ok()) return s;
    text_model_->restart();
    int64_t active = std::ssize(rows);
    for (int64_t index = 0; active > 0; ++index) {
      if (Status s = text_model_->score(texts, stop); !s.ok()) return s;
      if (stop.stop_requested()) {
        return make_error(ErrorCode::kCancelled, "CANCELLED", "stopped before the end");
      }
      for (size_t r = 0; r < rows.size(); ++r) {
        if (rows[r].next.finish != Finish::kNone) continue;
        add_token(options, rows[r], texts[r], on_text);
        if (rows[r].next.finish != Finish::kNone) --active;
      }
    }
    return {};
  }

 private:
  bool slides() const { return reader_.slides(); }

  Status check_length(int64_t tokens) const {
    if (slides() || tokens < context_) return {};
    return field_error("PROMPT_TOO_LONG", "prompt",
                       "has " + std::to_string(tokens) + " tokens, expected at most " +
                           std::to_string(context_ - 1) + ", one less than the model sees");
  }

  /// Draws the next token of a row and passes on its text.
  void add_token(const GenerateOptions& options, Row& row, std::vector<int32_t>& text,
                 const std::function<void(const Continuation&)>& on_text) {
    Continuation& next = row.next;
    text_model_->read(next.prompt, scores_);
    for (const size_t id : hidden_) scores_[id] = -std::numeric_limits<float>::infinity();
    const int32_t token = draw_token(scores_, row.seen, options.sampling, next.prompt, next.tokens);
    const bool ends = !options.ignore_end && reader_.is_end(token);
    if (!ends) {
      text.push_back(token);
      row.seen[static_cast<size_t>(token)] = true;
      ++next.tokens;
    }
    next.finish = ends                                        ? Finish::kEnd
                  : next.tokens >= options.tokens             ? Finish::kLength
                  : !slides() && std::ssize(text) >= context_ ? Finish::kContext
                                                              : Finish::kNone;
    const bool last = next.finish != Finish::kNone;
    const std::string shown = row.filter.pass(
        row.gate.pass(ends ? std::string_view() : reader_.text_of(token), last), last);
    if (row.filter.has_stopped()) next.finish = Finish::kStopString;
    Continuation part = next;
    part.text = shown;
    on_text(part);
  }

  const LoadedModel model_;
  Backend& backend_;
  const PromptReader reader_;
  const WeightStorage storage_;
  const int64_t context_;
  int64_t capacity_ = 0;
  std::unique_ptr<TextModel> text_model_;
  std::vector<float> scores_;
  // Tokens without a text, and rows of the head behind the vocabulary, are never drawn.
  std::vector<size_t> hidden_;
};

}  // namespace

Status check_generate(const GenerateOptions& options) {
  if (Status s = check_sampling(options.sampling); !s.ok()) return s;
  if (options.tokens < 1) {
    return field_error("FIELD_OUT_OF_RANGE", "token_count",
                       std::to_string(options.tokens) + ", expected 1 or more");
  }
  if (options.stop.size() > kStopStringsMax) {
    return field_error("FIELD_OUT_OF_RANGE", "stop",
                       "has " + std::to_string(options.stop.size()) +
                           " strings, expected at most " + std::to_string(kStopStringsMax));
  }
  for (size_t i = 0; i < options.stop.size(); ++i) {
    const std::string& s = options.stop[i];
    if (!s.empty() && s.size() <= kStopStringBytesMax && is_utf8(s)) continue;
    return field_error("FIELD_OUT_OF_RANGE", "stop[" + std::to_string(i) + "]",
                       std::to_string(s.size()) + " bytes, expected a text of 1 to " +
                           std::to_string(kStopStringBytesMax) + " bytes in UTF-8");
  }
  return {};
}

Result<std::unique_ptr<Generator>> Generator::open(const std::filesystem::path& folder,
                                                   Backend& backend) {
  ASSIGN_OR_RETURN(LoadedModel loaded, read_model(folder));
  if (!loaded.info.schema.next_token()) {
    return make_error(ErrorCode::kFailedPrecondition, "GENERATE_UNSUPPORTED",
                      "the model does not continue text: it predicts " +
                          quoted_value(loaded.info.schema.target.name) + " of rows");
  }
  auto generator = std::make_unique<LoadedGenerator>(std::move(loaded), backend);
  if (Status s = generator->reserve(1, 1); !s.ok()) return s.error();
  return std::unique_ptr<Generator>(std::move(generator));
}

}  // namespace trainyard
