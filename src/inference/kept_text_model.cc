#include <algorithm>
#include <optional>
#include <utility>

#include "src/inference/inference.h"
#include "src/inference/text_model.h"
#include "src/planning/generation_programs.h"

namespace trainyard {
namespace {

/// Describes the part of one text whose keys and values are in the caches.
struct KeptText {
  // The tokens whose keys and values are in the caches, from the text's token `begin` on.
  std::vector<int32_t> tokens;
  // So many of the first ones were written by the program that fills the caches. The others were
  // written by steps, whose results differ by roundings: a text that begins alike does not use
  // them, so that equal calls give equal texts.
  int64_t filled = 0;
  int64_t begin = 0;
  bool is_new = true;  // since restart()
};

class KeptTextModel final : public TextModel {
 public:
  KeptTextModel(GenerationPrograms programs, int64_t rows, int64_t capacity, Backend& backend)
      : rows_(rows), capacity_(capacity), fill_tokens_(programs.fill_tokens) {
    const int64_t persistent = programs.persistent_bytes();
    const int64_t transient = programs.transient_bytes();
    PreparedProgram fill(std::move(programs.fill.program), backend);
    PreparedProgram step(std::move(programs.step.program), backend);
    arena_.emplace(backend, persistent, transient,
                   std::max(fill.workspace_bytes(), step.workspace_bytes()));
    fill_.emplace(programs.fill, std::move(fill), *arena_);
    step_.emplace(programs.step, std::move(step), *arena_);
    texts_.resize(static_cast<size_t>(rows));
  }

  Status load(const SafetensorsFile& weights) { return write_weights(weights, step_->executor); }

  int64_t rows() const override { return rows_; }
  int64_t scores() const override {
    return step_->executor.program().graph.tensor(step_->output).type.shape.elements() / rows_;
  }

  void restart() override {
    for (KeptText& text : texts_) {
      if (text.begin > 0) text = {};
      text.tokens.resize(static_cast<size_t>(text.filled));
      text.is_new = true;
    }
  }

  Status score(std::span<const std::vector<int32_t>> texts, const std::stop_token& stop) override {
    for (size_t r = 0; r < texts_.size(); ++r) move_window(texts_[r], std::ssize(texts[r]));
    if (Status s = fill(texts, stop); !s.ok()) return s;
    std::vector<int32_t> tokens, positions;
    for (size_t r = 0; r < texts_.size(); ++r) {
      const int64_t last = std::ssize(texts[r]) - texts_[r].begin - 1;
      tokens.push_back(texts[r].back());
      positions.push_back(static_cast<int32_t>(last));
      if (last == std::ssize(texts_[r].tokens)) texts_[r].tokens.push_back(texts[r].back());
    }
    step_->run(tokens, positions);
    return {};
  }

  void read(int64_t row, std::span<float> scores) const override {
    step_->executor.read(step_->output, std::as_writable_bytes(scores),
                         static_cast<size_t>(row * this->scores()) * sizeof(float));
  }

 private:
  struct Runner {
    Runner(const GenerationProgram& ids, PreparedProgram prepared, Arena& arena)
        : input(ids.input),
          positions(ids.positions),
          output(ids.output),
          executor(std::move(prepared), arena) {}
    void run(std::span<const int32_t> tokens, std::span<const int32_t> places) {
      executor.write(input, std::as_bytes(tokens));
      if (positions != kNoTensor) executor.write(positions, std::as_bytes(places));
      executor.run();
    }
    TensorId input, positions, output;
    Executor executor;
  };

  /// Drops the first tokens of a text that is longer than the caches.
  void move_window(KeptText& text, int64_t length) const {
    if (length - text.begin > capacity_) {
      const int64_t seen = text.is_new ? capacity_ : (capacity_ + 1) / 2;
      text = {};
      text.begin = length - seen;
    }
    text.is_new = false;
  }

  /// Computes the keys and values of all tokens but the last of each text, as far as the caches do
  /// not have them.
  Status fill(std::span<const std::vector<int32_t>> texts, const std::stop_token& stop) {
    std::vector<int64_t> next(texts_.size());  // the first token of each text that is not kept
    bool is_missing = false;
    for (size_t r = 0; r < texts_.size(); ++r) {
      KeptText& text = texts_[r];
      const std::span<const int32_t> wanted = wanted_keys(texts[r], text);
      const auto [kept, other] = std::ranges::mismatch(text.tokens, wanted);
      next[r] = kept - text.tokens.begin();
      if (other == wanted.end()) {
        text.tokens.resize(wanted.size());
        text.filled = std::min(text.filled, std::ssize(wanted));
        continue;
      }
      // A token is always in the same row of its chunk, so that its keys have the same bits.
      next[r] = std::min(next[r], text.filled) / fill_tokens_ * fill_tokens_;
      text.tokens.assign(wanted.begin(), wanted.end());
      text.filled = std::ssize(wanted);
      is_missing = true;
    }
    while (is_missing) {
      if (stop.stop_requested()) {
        for (size_t r = 0; r < texts_.size(); ++r) {  // what is not computed is not kept
          texts_[r].filled = std::min(texts_[r].filled, next[r]);
          texts_[r].tokens.resize(static_cast<size_t>(texts_[r].filled));
        }
        return make_error(ErrorCode::kCancelled, "CANCELLED", "stopped before the end");
      }
      is_missing = fill_chunk(texts, next);
    }
    return {};
  }

  static std::span<const int32_t> wanted_keys(const std::vector<int32_t>& all,
                                              const KeptText& text) {
    return std::span(all)
        .subspan(static_cast<size_t>(text.begin))
        .first(all.size() - static_cast<size_t>(text.begin) - 1);
  }

  /// Computes a chunk of each text, from `next` on, and moves `next`. Returns whether more is
  /// missing. A text that needs fewer tokens than a chunk repeats its last one.
  bool fill_chunk(std::span<const std::vector<int32_t>> texts, std::vector<int64_t>& next) {
    std::vector<int32_t> tokens, positions;
    bool is_missing = false;
    for (size_t r = 0; r < texts_.size(); ++r) {
      const std::span<const int32_t> wanted = wanted_keys(texts[r], texts_[r]);
      const int64_t end = std::min(next[r] + fill_tokens_, std::ssize(wanted));
      for (int64_t t = 0; t < fill_tokens_; ++t) {
        const int64_t at = std::max<int64_t>(std::min(next[r] + t, end - 1), 0);
        // The key of a text's only token is written, and written once more by the step.
        tokens.push_back(wanted.empty() ? texts[r].back() : wanted[static_cast<size_t>(at)]);
        positions.push_back(static_cast<int32_t>(at));
      }
      next[r] = std::max(next[r], end);
      is_missing = is_missing || next[r] < std::ssize(wanted);
    }
    fill_->run(tokens, positions);
    return is_missing;
  }

  const int64_t rows_, capacity_, fill_tokens_;
  std::optional<Arena> arena_;
  std::optional<Runner> fill_, step_;
  std::vector<KeptText> texts_;
};

}  // namespace

Result<std::unique_ptr<TextModel>> open_kept_text_model(const LoadedModel& model, int64_t rows,
                                                        int64_t capacity,
                                                        const WeightStorage& storage,
                                                        Backend& backend) {
  ASSIGN_OR_RETURN(GenerationPrograms programs,
                   compile_generation(model.info.model, model.info.interface(), rows, capacity,
                                      backend.traits(), storage));
  auto text = std::make_unique<KeptTextModel>(std::move(programs), rows, capacity, backend);
  if (Status s = text->load(model.weights); !s.ok()) return s.error();
  return std::unique_ptr<TextModel>(std::move(text));
}

}  // namespace trainyard
