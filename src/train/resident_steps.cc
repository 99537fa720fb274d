#include "src/train/resident_steps.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "src/base/check.h"

namespace trainyard {
namespace {

constexpr auto kScalarsBytes = static_cast<int64_t>(sizeof(StepSlots::Scalars));
constexpr auto kMicroBatchBytes = static_cast<int64_t>(sizeof(StepSlots::MicroBatch));
constexpr auto kSampleBytes = static_cast<int64_t>(sizeof(kernels::ResidentSample));

int64_t words(int64_t bytes) { return (bytes + 3) / 4; }  // tensors and slots are padded to 4 bytes

}  // namespace

ResidentSteps::ResidentSteps(Backend& backend, ResidentDataset& data, const StepSlots& slots,
                             StepProgram train, StepProgram update, StepProgram average)
    : backend_(backend),
      slots_(slots),
      train_(train),
      update_(update),
      average_(average),
      data_(data),
      memory_(backend, slots.device_bytes()),
      staged_(static_cast<size_t>(slots.together * slots.input_bytes)) {}

int64_t ResidentSteps::together(int64_t most) const {
  if (!is_warm_ || train_.executor->waits_behind_nodes()) return 1;
  return static_cast<int64_t>(
      std::bit_floor(static_cast<uint64_t>(std::min(most, slots_.together))));
}

void ResidentSteps::begin(int64_t count, const std::function<TrainingSession::StepInputs()>& next,
                          std::byte* results) {
  TRAINYARD_CHECK(count >= 1 && count <= slots_.together,
                  std::to_string(count) + " steps, expected 1.." + std::to_string(slots_.together));
  for (int64_t k = 0; k < count; ++k) stage(k, next());
  backend_.copy_to_device(inputs(0), staged_.data(), count * slots_.input_bytes);
  if (!is_warm_ || train_.executor->waits_behind_nodes()) {
    submit(count);
    is_warm_ = true;
  } else {
    auto& recording = recordings_[count];
    if (recording == nullptr) recording = backend_.record([this, count] { submit(count); });
    recording->replay();
  }
  backend_.begin_copy_to_host(results, this->results(0), count * slots_.result_bytes);
}

void ResidentSteps::stage(int64_t step, const TrainingSession::StepInputs& inputs) {
  std::byte* const slot = staged_.data() + step * slots_.input_bytes;
  const StepSlots::Scalars scalars{inputs.step, inputs.learning_rate};
  std::memcpy(slot, &scalars, sizeof scalars);
  for (int64_t m = 0; m < slots_.micro_batches; ++m) {
    const StepSlots::MicroBatch micro_batch{m, inputs.step * slots_.micro_batches + m};
    std::memcpy(slot + kScalarsBytes + m * kMicroBatchBytes, &micro_batch, sizeof micro_batch);
    const auto samples = slots_.part(inputs.samples, m);
    TRAINYARD_CHECK(
        std::ssize(samples) == slots_.rows,
        std::to_string(samples.size()) + " samples, expected " + std::to_string(slots_.rows));
    std::memcpy(slot + slots_.samples_at + m * slots_.rows * kSampleBytes, samples.data(),
                samples.size_bytes());
  }
}

void ResidentSteps::submit(int64_t count) {
  for (int64_t k = 0; k < count; ++k) submit_step(k);
  submit_copies();
}

void ResidentSteps::submit_micro_batch(int64_t step, int64_t m) {
  const ProgramIds& ids = *train_.ids;
  const std::byte* const in = inputs(step);
  const std::byte* const micro_batch = in + kScalarsBytes + m * kMicroBatchBytes;
  load(train_, ids.micro_step, micro_batch + offsetof(StepSlots::MicroBatch, index));
  load(train_, ids.step, micro_batch + offsetof(StepSlots::MicroBatch, step));
  if (update_.executor == nullptr) {
    load(train_, ids.learning_rate, in + offsetof(StepSlots::Scalars, learning_rate));
  }
  void* const target =
      ids.target == kNoTensor ? nullptr : train_.executor->place_to_write(ids.target);
  data_.gather(
      reinterpret_cast<const kernels::ResidentSample*>(in + slots_.samples_at) + m * slots_.rows,
      slots_.rows, train_.executor->place_to_write(ids.input), target, copies_);
  copies_.clear();
  submit_kernels(train_);
  std::byte* const out = results(step) + m * slots_.micro_batch_bytes;
  store(train_, ids.loss, out);
  if (slots_.reads_output) store(train_, ids.output, out + slots_.output_at);
}

void ResidentSteps::submit_step(int64_t step) {
  for (int64_t m = 0; m < slots_.micro_batches; ++m) submit_micro_batch(step, m);
  const std::byte* const in = inputs(step);
  if (update_.executor != nullptr) {
    load(update_, update_.ids->step, in + offsetof(StepSlots::Scalars, step));
    load(update_, update_.ids->learning_rate, in + offsetof(StepSlots::Scalars, learning_rate));
    submit_kernels(update_);
  }
  const StepProgram& updater = update_.executor != nullptr ? update_ : train_;
  std::byte* const out = results(step);
  store(updater, updater.ids->gradient_norm, out + slots_.norm_at);
  store(updater, updater.ids->scaled.scale, out + slots_.scale_at);
  store(updater, updater.ids->scaled.learning_rate, out + slots_.rate_at);
  if (average_.executor != nullptr) {
    load(average_, average_.ids->step, in + offsetof(StepSlots::Scalars, step));
    submit_kernels(average_);
  }
}

void ResidentSteps::submit_kernels(const StepProgram& program) {
  submit_copies();
  program.executor->run_kernels();
}

void ResidentSteps::load(const StepProgram& program, TensorId id, const std::byte* from) {
  if (id == kNoTensor) return;
  add_copy(program,
           {program.executor->place_to_write(id), from, words(program.executor->stored_bytes(id))});
}

void ResidentSteps::store(const StepProgram& program, TensorId id, std::byte* to) {
  if (id == kNoTensor) return;
  add_copy(program,
           {to, program.executor->place_to_read(id), words(program.executor->stored_bytes(id))});
}

void ResidentSteps::add_copy(const StepProgram& program, const kernels::CopyPiece& copy) {
  if (copies_of_ != program.executor || copies_.size() == kernels::kCopyPiecesMax) submit_copies();
  copies_of_ = program.executor;
  copies_.push_back(copy);
}

void ResidentSteps::submit_copies() {
  if (copies_.empty()) return;
  backend_.copy_pieces(copies_);
  copies_.clear();
}

}  // namespace trainyard
