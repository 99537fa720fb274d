#include <algorithm>
#include <numeric>
#include <utility>

#include "src/inference/inference.h"
#include "src/inference/text_model.h"

namespace trainyard {
namespace {

class WindowTextModel final : public TextModel {
 public:
  WindowTextModel(std::unique_ptr<Inference> inference, int64_t rows, int64_t context,
                  int64_t scores)
      : inference_(std::move(inference)),
        scores_(scores),
        window_(static_cast<size_t>(context)),
        positions_(static_cast<size_t>(context)),
        results_(static_cast<size_t>(rows)) {
    std::iota(positions_.begin(), positions_.end(), 0);
    for (auto& row : results_) row.resize(static_cast<size_t>(scores));
  }

  int64_t rows() const override { return std::ssize(results_); }
  int64_t scores() const override { return scores_; }
  void restart() override {}

  Status score(std::span<const std::vector<int32_t>> texts, const std::stop_token& stop) override {
    for (size_t r = 0; r < results_.size(); ++r) {
      if (stop.stop_requested()) {
        return make_error(ErrorCode::kCancelled, "CANCELLED", "stopped before the end");
      }
      score_next(texts[r], results_[r]);
    }
    return {};
  }

  void read(int64_t row, std::span<float> scores) const override {
    std::ranges::copy(results_[static_cast<size_t>(row)], scores.begin());
  }

 private:
  /// Computes the scores of the token after `text`. The last tokens of `text` are at the start of
  /// the window; a causal model ignores the positions after them.
  void score_next(const std::vector<int32_t>& text, std::span<float> scores) {
    const size_t seen = std::min(text.size(), window_.size());
    std::copy(text.end() - static_cast<std::ptrdiff_t>(seen), text.end(), window_.begin());
    std::fill(window_.begin() + static_cast<std::ptrdiff_t>(seen), window_.end(), text.back());
    inference_->run(std::as_bytes(std::span(window_)), std::as_bytes(std::span(positions_)));
    inference_->read_output(scores, (static_cast<int64_t>(seen) - 1) * scores_);
  }

  const std::unique_ptr<Inference> inference_;
  const int64_t scores_;
  std::vector<int32_t> window_;
  std::vector<int32_t> positions_;           // of a text that is one document
  std::vector<std::vector<float>> results_;  // by row
};

}  // namespace

Result<std::unique_ptr<TextModel>> open_window_text_model(const LoadedModel& model, int64_t rows,
                                                          Backend& backend) {
  const ModelInfo& info = model.info;
  const int64_t context = info.preprocessing.context_length;
  ASSIGN_OR_RETURN(BoundProgram bound, compile_inference(info.model, info.interface(), 1, nullptr,
                                                         info.precision, {}, backend.traits()));
  const int64_t scores = bound.program.graph.tensor(bound.output).type.shape.elements() / context;
  ASSIGN_OR_RETURN(std::unique_ptr<Inference> inference,
                   Inference::open(std::move(bound), model.weights, backend));
  return std::unique_ptr<TextModel>(
      std::make_unique<WindowTextModel>(std::move(inference), rows, context, scores));
}

}  // namespace trainyard
