#include "src/train/session.h"

#include <algorithm>
#include <set>

#include "src/graph/op.h"
#include "src/train/initialise.h"

namespace trainyard {

namespace {

// Outputs of an evaluation are read back this many at a time, or one row: the scores of a language
// model's batch may be larger than all else on the host.
constexpr int64_t kOutputElements = int64_t{1} << 20;

bool is_weight(const TensorInfo& t) { return t.role == Role::kParameter || t.role == Role::kState; }

size_t elements(const Graph& graph, TensorId id) {
  return static_cast<size_t>(graph.tensor(id).type.shape.elements());
}

// The ids of a bound program; the program itself moves on into its executor.
BoundProgram take_ids(const BoundProgram& bound) {
  BoundProgram ids;
  ids.input = bound.input;
  ids.target = bound.target;
  ids.step = bound.step;
  ids.learning_rate = bound.learning_rate;
  ids.loss = bound.loss;
  ids.output = bound.output;
  ids.batch_size = bound.batch_size;
  return ids;
}

}  // namespace

Status check_kernels(const RunPrograms& programs, const Backend& backend) {
  std::set<std::string> missing;
  const auto look = [&](const Program& program) {
    for (const Node& node : program.graph.nodes()) {
      if (!backend.has_kernel(node.op->type())) missing.insert(std::string(node.op->type()));
    }
  };
  look(programs.train.program);
  if (programs.evaluate.has_value()) look(programs.evaluate->program);
  if (missing.empty()) return {};
  std::string names;
  for (const std::string& name : missing) names += (names.empty() ? "" : ", ") + name;
  return make_error(ErrorCode::kFailedPrecondition, "MODEL_OP_UNSUPPORTED",
                    "model: the " + std::string(backend.name()) + " backend has no kernel for " +
                        names + "; choose another device");
}

Session::Session(RunPrograms programs, Backend& backend) {
  train_ids_ = take_ids(programs.train);
  const int64_t persistent = programs.train.program.persistent_bytes;
  int64_t transient = programs.train.program.transient_bytes;
  PreparedProgram train(std::move(programs.train.program), backend);
  int64_t workspace = train.workspace_bytes();
  std::optional<PreparedProgram> evaluate;
  if (programs.evaluate.has_value()) {
    evaluate_ids_ = take_ids(*programs.evaluate);
    evaluation_batch_ = evaluate_ids_.batch_size;
    transient = std::max(transient, programs.evaluate->program.transient_bytes);
    evaluate.emplace(std::move(programs.evaluate->program), backend);
    workspace = std::max(workspace, evaluate->workspace_bytes());
  }
  arena_.emplace(backend, persistent, transient, workspace);
  train_.emplace(std::move(train), *arena_);
  if (graph().tensor(train_ids_.output).type.shape.rank() == 2) {
    logits_.resize(elements(graph(), train_ids_.output));
  }
  if (evaluate.has_value()) {
    evaluate_.emplace(std::move(*evaluate), *arena_);
    const size_t size = elements(evaluate_->program().graph, evaluate_ids_.output);
    evaluation_row_elements_ = static_cast<int64_t>(size) / evaluation_batch_;
    const int64_t rows =
        std::clamp<int64_t>(kOutputElements / evaluation_row_elements_, 1, evaluation_batch_);
    evaluation_output_.resize(static_cast<size_t>(rows * evaluation_row_elements_));
  }
}

void Session::initialise(uint64_t seed) {
  std::vector<std::byte> values;
  for (size_t i = 0; i < graph().tensors().size(); ++i) {
    const TensorInfo& t = graph().tensors()[i];
    if (!is_weight(t) && t.role != Role::kOptimizerState) continue;
    values.resize(static_cast<size_t>(t.type.bytes()));
    initialise_tensor(t, seed, values);
    train_->write(static_cast<TensorId>(i), values);
  }
}

Status Session::load(const SafetensorsFile& weights, const SafetensorsFile& optimizer) {
  size_t weight_count = 0;
  size_t optimizer_count = 0;
  const auto mismatch = [](const std::string& what) {
    return make_error(ErrorCode::kDataLoss, "CHECKPOINT_MISMATCH", "checkpoint: " + what);
  };
  for (size_t i = 0; i < graph().tensors().size(); ++i) {
    const TensorInfo& t = graph().tensors()[i];
    const bool weight = is_weight(t);
    if (!weight && t.role != Role::kOptimizerState) continue;
    ++(weight ? weight_count : optimizer_count);
    const TensorView* view = (weight ? weights : optimizer).find(t.name);
    if (view == nullptr) return mismatch("tensor " + t.name + " is missing");
    if (view->type != t.type) {
      return mismatch("tensor " + t.name + " has shape " + view->type.shape.to_string() +
                      ", expected " + t.type.shape.to_string());
    }
    train_->write(static_cast<TensorId>(i), view->bytes);
  }
  if (weights.tensors().size() != weight_count || optimizer.tensors().size() != optimizer_count) {
    return mismatch("it has tensors that this model does not have");
  }
  return {};
}

Snapshot Session::snapshot() const {
  Snapshot s;
  for (size_t i = 0; i < graph().tensors().size(); ++i) {
    const TensorInfo& t = graph().tensors()[i];
    if (!is_weight(t) && t.role != Role::kOptimizerState) continue;
    s.storage.emplace_back(static_cast<size_t>(t.type.bytes()));
    train_->read(static_cast<TensorId>(i), s.storage.back());
    // A vector keeps its memory when the outer vector moves it, so the span stays good.
    (is_weight(t) ? s.weights : s.optimizer).push_back({t.name, t.type, s.storage.back()});
  }
  return s;
}

float Session::run_step(const StepInputs& inputs) {
  train_->write(train_ids_.input, inputs.input);
  train_->write(train_ids_.target, inputs.target);
  if (train_ids_.step != kNoTensor) {
    train_->write(train_ids_.step, std::as_bytes(std::span(&inputs.step, 1)));
  }
  train_->write(train_ids_.learning_rate, std::as_bytes(std::span(&inputs.learning_rate, 1)));
  train_->run();
  float loss = 0;
  train_->read(train_ids_.loss, std::as_writable_bytes(std::span(&loss, 1)));
  if (!logits_.empty()) {
    train_->read(train_ids_.output, std::as_writable_bytes(std::span(logits_)));
  }
  return loss;
}

void Session::evaluate(std::span<const std::byte> input) {
  TRAINYARD_CHECK(evaluate_.has_value(), "the job has nothing to evaluate");
  evaluate_->write(evaluate_ids_.input, input);
  evaluate_->run();
  evaluation_first_ = evaluation_batch_;  // nothing is read yet
}

std::span<const float> Session::evaluation_output(int64_t row) {
  TRAINYARD_CHECK(row >= 0 && row < evaluation_batch_, "row out of range");
  const auto width = static_cast<size_t>(evaluation_row_elements_);
  const auto held = std::ssize(evaluation_output_) / evaluation_row_elements_;
  if (row < evaluation_first_ || row >= evaluation_first_ + held) {
    evaluation_first_ = std::min(row, evaluation_batch_ - held);
    evaluate_->read(evaluate_ids_.output, std::as_writable_bytes(std::span(evaluation_output_)),
                    static_cast<size_t>(evaluation_first_) * width * sizeof(float));
  }
  return std::span<const float>(evaluation_output_)
      .subspan(static_cast<size_t>(row - evaluation_first_) * width, width);
}

int64_t Session::arena_used_bytes() const {
  const int64_t train = train_->used_bytes();
  return evaluate_.has_value() ? std::max(train, evaluate_->used_bytes()) : train;
}

}  // namespace trainyard
