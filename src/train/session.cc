#include "src/train/session.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/base/crc32c.h"
#include "src/checkpoint/typed_bytes.h"
#include "src/graph/op.h"
#include "src/ops/shards.h"
#include "src/train/initialize.h"

namespace trainyard {

namespace {

// Evaluation outputs are read back in blocks of this many elements, at least one row: the scores of
// a language model's batch may be larger than everything else on the host.
constexpr size_t kPartBytes = size_t{4} << 20;  // of a tensor that is written part by part
constexpr int64_t kOutputElements = int64_t{1} << 20;

bool is_weight(const TensorInfo& t) { return t.role == Role::kParameter || t.role == Role::kState; }

size_t elements(const Graph& graph, TensorId id) {
  return static_cast<size_t>(graph.tensor(id).type.shape.elements());
}

std::span<const std::byte> bytes_of(const auto& value) {
  return std::as_bytes(std::span(&value, 1));
}

bool same_values(const TensorView& a, const TensorView& b) {
  if (a.storage == b.storage) return std::ranges::equal(a.bytes, b.bytes);
  std::vector<std::byte> widened_a, widened_b;
  return std::ranges::equal(typed_bytes(a, widened_a), typed_bytes(b, widened_b));
}

}  // namespace

Session::Session(RunPrograms programs, Backend& backend, int64_t micro_batches, Rank rank,
                 std::shared_ptr<const WeightsFile> mapped)
    : backend_(backend),
      rank_(rank),
      mapped_(std::move(mapped)),
      slots_(plan_step_slots(programs, micro_batches, rank)) {
  const int64_t persistent = programs.persistent_bytes();
  int64_t transient = 0;
  int64_t workspace = 0;
  const auto prepare = [&](BoundProgram& bound, ProgramIds& ids) {
    ids = bound;
    transient = std::max(transient, bound.program.transient_bytes);
    PreparedProgram prepared(std::move(bound.program), backend);
    workspace = std::max(workspace, prepared.workspace_bytes());
    return prepared;
  };
  const auto prepare_optional = [&](std::optional<BoundProgram>& bound, ProgramIds& ids) {
    std::optional<PreparedProgram> prepared;
    if (bound.has_value()) prepared.emplace(prepare(*bound, ids));
    return prepared;
  };
  PreparedProgram train = prepare(programs.train, train_ids_);
  auto update = prepare_optional(programs.update, update_ids_);
  auto average = prepare_optional(programs.average, average_ids_);
  auto evaluate = prepare_optional(programs.evaluate, evaluate_ids_);
  arena_.emplace(backend, persistent, transient, workspace,
                 mapped_ == nullptr ? std::span<const std::byte>() : mapped_->file_bytes());
  train_.emplace(std::move(train), *arena_);
  if (update.has_value()) update_.emplace(std::move(*update), *arena_);
  if (average.has_value()) average_.emplace(std::move(*average), *arena_);
  if (slots_.reads_output) {
    logits_.resize(elements(graph(), train_ids_.output) * static_cast<size_t>(micro_batches));
  }
  if (evaluate.has_value()) {
    evaluation_batch_ = evaluate_ids_.batch_size;
    evaluate_.emplace(std::move(*evaluate), *arena_);
    evaluation_rows_ = evaluation_batch_ * (evaluate_ids_.split_classes > 0 ? rank_.count : 1);
    const size_t size = elements(evaluate_->program().graph, evaluate_ids_.output);
    evaluation_row_elements_ = static_cast<int64_t>(size) / evaluation_rows_;
    const int64_t rows =
        std::clamp<int64_t>(kOutputElements / evaluation_row_elements_, 1, evaluation_rows_);
    evaluation_output_.resize(static_cast<size_t>(rows * evaluation_row_elements_));
  }
  make_submissions(1);
  find_saved();
}

void Session::find_saved() {
  for (auto* executor : {&train_, &update_, &average_}) {
    if (!executor->has_value()) continue;
    const Graph& g = (*executor)->program().graph;
    for (TensorId id = 0; id < static_cast<TensorId>(g.tensors().size()); ++id) {
      const TensorInfo& t = g.tensor(id);
      if (!is_weight(t) && t.role != Role::kOptimizerState) continue;
      if (saved_by_name_.emplace(t.name, saved_.size()).second) saved_.push_back({&**executor, id});
    }
  }
}

void Session::initialize(uint64_t seed) {
  std::vector<std::byte> values;
  for (const Saved& s : saved_) {
    if (s.info().is_mapped()) continue;
    const auto bytes = static_cast<size_t>(s.info().type.bytes());
    if (s.info().shard_of.has_value()) {
      values.resize(bytes);
      initialize_shard(s.info(), seed, rank_.index, values);
      s.executor->write(s.id, values);
      continue;
    }
    const auto size = static_cast<int64_t>(size_of(s.info().type.dtype));
    for (size_t at = 0; at < bytes; at += kPartBytes) {
      values.resize(std::min(kPartBytes, bytes - at));
      initialize_part(s.info(), seed, static_cast<int64_t>(at) / size, values);
      s.executor->write(s.id, values, at);
    }
  }
}

Status Session::load(const SafetensorsFile& weights, const SafetensorsFile& optimizer) {
  size_t weight_count = 0;
  size_t optimizer_count = 0;
  const auto mismatch = [](const std::string& what) {
    return make_error(ErrorCode::kDataLoss, "CHECKPOINT_MISMATCH", "checkpoint: " + what);
  };
  for (const Saved& s : saved_) {
    const TensorInfo& t = s.info();
    ++(s.is_weight() ? weight_count : optimizer_count);
    const TensorView* view = (s.is_weight() ? weights : optimizer).find(t.name);
    if (view == nullptr) return mismatch("tensor " + t.name + " is missing");
    if (view->type != t.whole_type()) {
      return mismatch("tensor " + t.name + " has shape " + view->type.shape.to_string() +
                      ", expected " + t.whole_type().shape.to_string());
    }
    if (!t.is_mapped()) {
      write_whole(s, *view);
    } else if (!same_values(*view, {t.name, t.type, stored_in_place(s), t.storage})) {
      return make_error(
          ErrorCode::kDataLoss, std::string(kMappedFileChanged),
          "recipe.initial_weights: " + t.name + " in the file differs from the checkpoint");
    }
  }
  const auto kept = static_cast<size_t>(std::ranges::count_if(
      optimizer.tensors(), [](const TensorView& t) { return t.name.starts_with(kKeptPrefix); }));
  if (weights.tensors().size() != weight_count ||
      optimizer.tensors().size() != optimizer_count + kept) {
    return mismatch("it has tensors that this model does not have");
  }
  return {};
}

void Session::write_whole(const Saved& to, const TensorView& view) {
  std::vector<std::byte> widened;
  write_whole(to, typed_bytes(view, widened));
}

void Session::write_whole(const Saved& to, std::span<const std::byte> values) {
  const TensorInfo& t = to.info();
  if (t.is_mapped()) return;  // its values are those of the file, which never change
  if (!t.shard_of.has_value()) {
    to.executor->write(to.id, values);
    return;
  }
  const size_t size = size_of(t.type.dtype);
  std::vector<std::byte> shard(static_cast<size_t>(t.type.bytes()));
  elements_of_shard(t, rank_.index).for_each_run([&](int64_t from, int64_t at, int64_t count) {
    std::memcpy(shard.data() + static_cast<size_t>(at) * size,
                values.data() + static_cast<size_t>(from) * size,
                static_cast<size_t>(count) * size);
  });
  to.executor->write(to.id, shard);
}

void Session::read_whole(size_t index, const std::vector<const Session*>& ranks,
                         std::span<std::byte> values) const {
  const Saved& saved = saved_[index];
  const TensorInfo& t = saved.info();
  if (!t.shard_of.has_value()) {
    saved.executor->read(saved.id, values);
    return;
  }
  std::vector<std::byte> columns;
  for (const Session* rank : ranks) {
    const ShardElements range = elements_of_shard(t, rank->rank_.index);
    if (range.count == 0) continue;
    const size_t size = size_of(t.type.dtype);
    const Saved& shard = rank->saved_[index];
    if (range.runs == 1) {
      shard.executor->read(shard.id,
                           values.subspan(static_cast<size_t>(range.first) * size,
                                          static_cast<size_t>(range.count) * size),
                           0);
      continue;
    }
    columns.resize(static_cast<size_t>(t.type.bytes()));
    shard.executor->read(shard.id, columns);
    range.for_each_run([&](int64_t to, int64_t at, int64_t count) {
      std::memcpy(values.data() + static_cast<size_t>(to) * size,
                  columns.data() + static_cast<size_t>(at) * size,
                  static_cast<size_t>(count) * size);
    });
  }
}

std::vector<size_t> Session::copied_tensors(Copied copied) const {
  std::vector<size_t> tensors;
  for (size_t i = 0; i < saved_.size(); ++i) {
    if (copied == Copied::kAll) {
      tensors.push_back(i);
    } else if (saved_[i].is_weight()) {
      tensors.push_back(static_cast<size_t>(&evaluated(saved_[i]) - saved_.data()));
    }
  }
  return tensors;
}

std::vector<std::span<std::byte>> Session::parts_of(Snapshot& snapshot, Rank rank,
                                                    Copied copied) const {
  std::vector<std::span<std::byte>> parts;
  const std::vector<size_t> tensors = copied_tensors(copied);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& t = saved_[tensors[i]].info();
    if (!t.shard_of.has_value()) continue;
    const size_t size = size_of(t.type.dtype);
    elements_of_shard(t, rank.index).for_each_run([&](int64_t first, int64_t, int64_t count) {
      parts.push_back(
          std::span(snapshot.storage[i])
              .subspan(static_cast<size_t>(first) * size, static_cast<size_t>(count) * size));
    });
  }
  return parts;
}

std::span<const std::byte> Session::stored_in_place(const Saved& saved) const {
  return {static_cast<const std::byte*>(saved.executor->place_to_read(saved.id)),
          static_cast<size_t>(saved.info().stored_bytes())};
}

TensorView Session::copy_of(size_t index, const std::vector<const Session*>& ranks,
                            std::vector<std::byte>& storage) const {
  const Saved& saved = saved_[index];
  const TensorInfo& t = saved.info();
  TensorView view{t.name, t.whole_type(), {}, t.storage};
  const auto bytes = static_cast<size_t>(view.stored_bytes());
  if (t.is_half()) {
    if (backend_.computes_in_host_memory()) {
      view.bytes = stored_in_place(saved);
      return view;
    }
    storage.resize(bytes);
    backend_.synchronize();
    backend_.copy_to_host(storage.data(), saved.executor->place_to_read(saved.id),
                          static_cast<int64_t>(bytes));
  } else {
    storage.resize(bytes);
    read_whole(index, ranks, storage);
  }
  view.bytes = storage;
  return view;
}

Snapshot Session::snapshot(const std::vector<const Session*>& ranks) const {
  Snapshot snapshot;
  for (size_t i = 0; i < saved_.size(); ++i) {
    // A vector keeps its memory when the outer vector moves it, so the view stays valid.
    TensorView view = copy_of(i, ranks, snapshot.storage.emplace_back());
    (saved_[i].is_weight() ? snapshot.weights : snapshot.optimizer).push_back(std::move(view));
  }
  return snapshot;
}

const Session::Saved& Session::evaluated(const Saved& weight) const {
  const auto average = saved_by_name_.find(weight.info().name + std::string(kAverageSuffix));
  return average == saved_by_name_.end() ? weight : saved_[average->second];
}

Snapshot Session::evaluated_weights(const std::vector<const Session*>& ranks) const {
  Snapshot snapshot;
  for (const Saved& s : saved_) {
    if (!s.is_weight()) continue;
    TensorView view = copy_of(static_cast<size_t>(&evaluated(s) - saved_.data()), ranks,
                              snapshot.storage.emplace_back());
    view.name = s.info().name;
    snapshot.weights.push_back(std::move(view));
  }
  return snapshot;
}

void Session::set_evaluated_weights(const Snapshot& weights) {
  for (const TensorView& view : weights.weights) {
    write_whole(evaluated(saved_[saved_by_name_.at(view.name)]), view);
  }
}

std::vector<TensorInfo> Session::weight_tensors() const {
  std::vector<TensorInfo> tensors;
  for (const Saved& s : saved_) {
    if (!s.is_weight()) continue;
    tensors.push_back(s.info());
    tensors.back().type = s.info().whole_type();
    tensors.back().shard_of.reset();
    tensors.back().shard_axis = 0;
  }
  return tensors;
}

void Session::write_weight(std::string_view name, std::span<const std::byte> bytes) {
  const auto it = saved_by_name_.find(name);
  TRAINYARD_CHECK(it != saved_by_name_.end(), "no weight " + std::string(name));
  write_whole(saved_[it->second], bytes);
}

void Session::write_weight_part(std::string_view name, int64_t first,
                                std::span<const std::byte> bytes) {
  const auto it = saved_by_name_.find(name);
  TRAINYARD_CHECK(it != saved_by_name_.end(), "no weight " + std::string(name));
  const Saved& to = saved_[it->second];
  if (to.info().is_mapped()) return;  // its values are those of the file, which never change
  const auto size = static_cast<int64_t>(size_of(to.info().type.dtype));
  const int64_t end = first + std::ssize(bytes) / size;
  const auto write = [&](int64_t from, int64_t at, int64_t count) {
    const int64_t begin = std::max(from, first), stop = std::min(from + count, end);
    if (begin >= stop) return;
    to.executor->write(to.id,
                       bytes.subspan(static_cast<size_t>((begin - first) * size),
                                     static_cast<size_t>((stop - begin) * size)),
                       static_cast<size_t>((at + begin - from) * size));
  };
  if (to.info().shard_of.has_value()) {
    elements_of_shard(to.info(), rank_.index).for_each_run(write);
  } else {
    write(0, 0, to.info().type.shape.elements());
  }
}

std::map<std::string, uint32_t> Session::checksums() const {
  std::map<std::string, uint32_t> sums;
  std::vector<std::byte> values;
  for (const Saved& s : saved_) {
    if (s.info().role == Role::kState || s.info().shard_of.has_value()) continue;
    values.resize(static_cast<size_t>(s.info().type.bytes()));
    s.executor->read(s.id, values);
    sums[s.info().name] = crc32c(values);
  }
  return sums;
}

std::vector<std::byte> Session::read_state() const {
  std::vector<std::byte> values;
  for (const Saved& s : saved_) {
    if (s.info().role != Role::kState) continue;
    const size_t from = values.size();
    values.resize(from + static_cast<size_t>(s.info().type.bytes()));
    s.executor->read(s.id, std::span(values).subspan(from));
  }
  return values;
}

void Session::write_state(std::span<const std::byte> values) {
  for (const Saved& s : saved_) {
    if (s.info().role != Role::kState) continue;
    const auto size = static_cast<size_t>(s.info().type.bytes());
    s.executor->write(s.id, values.first(size));
    values = values.subspan(size);
  }
}

void Session::make_submissions(int64_t steps) {
  static_assert(Backend::kMarks >= kSubmittedAhead + 2, "a mark would be taken again too early");
  submissions_.clear();
  for (int64_t i = 0; i <= kSubmittedAhead; ++i) {
    submissions_.emplace_back(new Submission{{backend_, steps * slots_.result_bytes}});
  }
}

void Session::make_resident(const ResidentSource& source) {
  TRAINYARD_CHECK(submitted_ == 0, "rows are held from the first step on");
  const auto program = [](std::optional<Executor>& executor, const ProgramIds& ids) {
    return executor.has_value() ? StepProgram{&*executor, &ids} : StepProgram();
  };
  data_.emplace(backend_, source);
  resident_.emplace(backend_, *data_, slots_, program(train_, train_ids_),
                    program(update_, update_ids_), program(average_, average_ids_));
  make_submissions(slots_.together);
}

int64_t Session::together(int64_t most) const {
  return resident_.has_value() ? resident_->together(most) : 1;
}

void Session::add_piece(const Executor& executor, TensorId id, std::span<const std::byte> bytes) {
  if (id == kNoTensor) return;
  const TensorInfo& t = executor.program().graph.tensor(id);
  TRAINYARD_CHECK(std::ssize(bytes) == t.type.bytes(),
                  t.name + ": " + std::to_string(bytes.size()) + " bytes, it has " +
                      std::to_string(t.type.bytes()));
  pieces_.push_back({executor.place_to_write(id), bytes.data(), std::ssize(bytes)});
}

void Session::bring_pieces() {
  backend_.copy_block_to_device(pieces_);
  pieces_.clear();
}

float Session::loss_share(const StepInputs& inputs, int64_t micro_batch) const {
  if (inputs.loss_shares.empty()) return 1;
  const bool of_all_ranks = std::ssize(inputs.loss_shares) == slots_.micro_batches;
  const int64_t part = of_all_ranks ? micro_batch : micro_batch * rank_.count + rank_.index;
  return inputs.loss_shares[static_cast<size_t>(part)];
}

void Session::begin_micro_batch(const StepInputs& inputs, int64_t index, std::byte* results) {
  if (staged_.has_value()) {
    const auto rows =
        staged_->pieces(slots_.part(inputs.samples, index), slots_.part(inputs.stored, index));
    pieces_.insert(pieces_.end(), rows.begin(), rows.end());
  } else {
    add_piece(*train_, train_ids_.input, slots_.part(inputs.input, index));
    add_piece(*train_, train_ids_.positions, slots_.part(inputs.positions, index));
    add_piece(*train_, train_ids_.target, slots_.part(inputs.target, index));
  }
  const float share = loss_share(inputs, index);
  add_piece(*train_, train_ids_.loss_share, bytes_of(share));
  add_piece(*train_, train_ids_.micro_step, bytes_of(index));
  // The key of the model's random numbers: each micro-batch draws its own.
  const int64_t step = inputs.step * slots_.micro_batches + index;
  add_piece(*train_, train_ids_.step, bytes_of(step));
  if (!update_.has_value()) {
    add_piece(*train_, train_ids_.learning_rate, bytes_of(inputs.learning_rate));
  }
  bring_pieces();
  if (staged_.has_value()) {
    staged_->gather(
        train_->place_to_write(train_ids_.input),
        train_ids_.target == kNoTensor ? nullptr : train_->place_to_write(train_ids_.target));
  }
  train_->run();
  train_->begin_read(train_ids_.loss, results);
  if (slots_.reads_output) train_->begin_read(train_ids_.output, results + slots_.output_at);
}

void Session::begin_step_from_host(const StepInputs& inputs, std::byte* results) {
  for (int64_t k = 0; k < slots_.micro_batches; ++k) {
    begin_micro_batch(inputs, k, results + k * slots_.micro_batch_bytes);
  }
  if (update_.has_value()) {
    add_piece(*update_, update_ids_.step, bytes_of(inputs.step));
    add_piece(*update_, update_ids_.learning_rate, bytes_of(inputs.learning_rate));
    bring_pieces();
    update_->run();
  }
  if (has_gradient_norm()) {
    updater().begin_read(update_ids().gradient_norm, results + slots_.norm_at);
  }
  if (scales_loss()) {
    updater().begin_read(update_ids().scaled.scale, results + slots_.scale_at);
    updater().begin_read(update_ids().scaled.learning_rate, results + slots_.rate_at);
  }
  if (average_.has_value()) {
    add_piece(*average_, average_ids_.step, bytes_of(inputs.step));
    bring_pieces();
    average_->run();
  }
}

void Session::begin_steps(int64_t count, const std::function<StepInputs()>& next) {
  TRAINYARD_CHECK(submitted_ - finished_ <= kSubmittedAhead, "too many steps under way");
  Submission& submission = *submissions_[static_cast<size_t>(submitted_++) % submissions_.size()];
  submission.steps = count;
  submission.finished = 0;
  std::byte* const results = submission.results.get();
  if (resident_.has_value()) {
    resident_->begin(count, next, results);
  } else {
    TRAINYARD_CHECK(count == 1, "batches from the host are begun one by one");
    const StepInputs inputs = next();
    submission.loss_shares.clear();
    for (int64_t k = 0; k < slots_.micro_batches; ++k) {
      submission.loss_shares.push_back(loss_share(inputs, k));
    }
    begin_step_from_host(inputs, results);
  }
  submission.mark = backend_.mark();
}

void Session::wait_after_nodes(bool waits) {
  for (auto* executor : {&train_, &update_, &average_, &evaluate_}) {
    if (executor->has_value()) (*executor)->wait_after_nodes(waits);
  }
}

Session::StepResult Session::finish_step() {
  TRAINYARD_CHECK(finished_ < submitted_, "no step is under way");
  Submission& submission = *submissions_[static_cast<size_t>(finished_) % submissions_.size()];
  if (submission.finished == 0) backend_.wait(submission.mark);
  const std::byte* const results =
      submission.results.get() + submission.finished * slots_.result_bytes;
  if (++submission.finished == submission.steps) ++finished_;
  const auto take = [](Executor& executor, TensorId id, const std::byte* from,
                       std::span<float> to) {
    executor.take(id, from, std::as_writable_bytes(to));
  };
  double loss = 0;
  const size_t rows = logits_.size() / static_cast<size_t>(slots_.micro_batches);
  for (int64_t k = 0; k < slots_.micro_batches; ++k) {
    const std::byte* const from = results + k * slots_.micro_batch_bytes;
    float part = 0;
    take(*train_, train_ids_.loss, from, std::span(&part, 1));
    const auto& shares = submission.loss_shares;
    loss += static_cast<double>(part) *
            (shares.empty() ? 1.0 : static_cast<double>(shares[static_cast<size_t>(k)]));
    if (logits_.empty()) continue;
    take(*train_, train_ids_.output, from + slots_.output_at,
         std::span(logits_).subspan(rows * static_cast<size_t>(k), rows));
  }
  StepResult result;
  result.loss = static_cast<float>(loss / static_cast<double>(slots_.micro_batches));
  result.logits = logits_;
  const auto scalar = [&](TensorId id, int64_t at) {
    float value = 0;
    take(updater(), id, results + at, std::span(&value, 1));
    return value;
  };
  if (has_gradient_norm())
    result.gradient_norm = scalar(update_ids().gradient_norm, slots_.norm_at);
  if (scales_loss()) {
    result.loss_scale = scalar(update_ids().scaled.scale, slots_.scale_at);
    result.skipped = std::isnan(scalar(update_ids().scaled.learning_rate, slots_.rate_at));
  }
  return result;
}

void Session::evaluate(std::span<const std::byte> input, std::span<const std::byte> positions) {
  TRAINYARD_CHECK(evaluate_.has_value(), "the job has nothing to evaluate");
  evaluate_->write(evaluate_ids_.input, input);
  if (evaluate_ids_.positions != kNoTensor) evaluate_->write(evaluate_ids_.positions, positions);
  run_evaluation();
}

void Session::evaluate_resident(std::span<const kernels::ResidentSample> samples) {
  TRAINYARD_CHECK(evaluate_.has_value() && data_.has_value(), "the job has no rows to evaluate");
  data_->gather_evaluation(samples, evaluate_->place_to_write(evaluate_ids_.input));
  run_evaluation();
}

void Session::run_evaluation() {
  evaluate_->run();
  // Waiting on the rank's thread lets the caller notice a rank that has stopped, or that waits for
  // others. The outputs are read without a time limit.
  if (rank_.count > 1) backend_.wait(backend_.mark());
  evaluation_first_ = evaluation_rows_;  // no output has been read back yet
}

std::span<const float> Session::evaluation_output(int64_t row) {
  TRAINYARD_CHECK(row >= 0 && row < evaluation_rows_, "row out of range");
  const auto width = static_cast<size_t>(evaluation_row_elements_);
  const auto buffered = std::ssize(evaluation_output_) / evaluation_row_elements_;
  if (row < evaluation_first_ || row >= evaluation_first_ + buffered) {
    evaluation_first_ = std::min(row, evaluation_rows_ - buffered);
    evaluate_->read(evaluate_ids_.output, std::as_writable_bytes(std::span(evaluation_output_)),
                    static_cast<size_t>(evaluation_first_) * width * sizeof(float));
  }
  return std::span<const float>(evaluation_output_)
      .subspan(static_cast<size_t>(row - evaluation_first_) * width, width);
}

int64_t Session::output_columns() const {
  const Shape& output = graph().tensor(train_ids_.output).type.shape;
  return output[output.rank() - 1];
}

int64_t Session::arena_used_bytes() const {
  int64_t used = 0;
  for (const auto* executor : {&train_, &update_, &average_, &evaluate_}) {
    if (executor->has_value()) used = std::max(used, (*executor)->used_bytes());
  }
  return used;
}

}  // namespace trainyard
