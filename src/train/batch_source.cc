#include "src/train/batch_source.h"

#include "src/planning/step_slots.h"

namespace trainyard {

BatchSource BatchSource::on_device(const BatchInputs& inputs, const Backend& backend,
                                   TrainingSession& session) {
  const bool is_resident = inputs.shape.resident.has_value();
  if (!backend.supports_resident_rows() || (!is_resident && !inputs.shape.staged.has_value())) {
    return BatchSource(inputs);
  }
  const DatasetSchema& schema = inputs.data.schema();
  const Augmenter augmenter =
      make_augmenter(inputs.recipe.augmentation, schema, inputs.preprocessing);
  const RowTransform transform(schema, inputs.preprocessing);
  const std::vector<float> mean(augmenter.mean().begin(), augmenter.mean().end());
  if (is_resident) {
    session.make_resident({*inputs.shape.resident, transform, inputs.data.train(), mean});
    return BatchSource(inputs, Kind::kResident);
  }
  session.stage_rows({*inputs.shape.staged, transform, mean});
  return BatchSource(inputs, Kind::kStaged);
}

RowsFrom BatchSource::held_out() const {
  const bool is_on_device = kind_ == Kind::kResident && inputs_.shape.resident->evaluation_rows > 0;
  return is_on_device ? RowsFrom::kDevice : RowsFrom::kHost;
}

Loader::Options BatchSource::options(int64_t first_step) const {
  const Recipe& recipe = inputs_.recipe;
  const DatasetSchema& schema = inputs_.data.schema();
  Loader::Options options;
  options.batch_size = recipe.batch_size;
  options.seed = recipe.seed;
  options.shuffle = recipe.shuffle;
  options.drop_last = recipe.drop_last;
  options.shift_max = inputs_.split.shift_max;
  options.first_step = first_step;
  options.augmenter = make_augmenter(recipe.augmentation, schema, inputs_.preprocessing);
  options.mixer = make_mixer(recipe.augmentation, schema);
  options.samples = kind_ != Kind::kHost;
  // A split head computes the loss of the rows of all ranks.
  options.parts =
      inputs_.shape.micro_batches * (splits_head(recipe.shard) ? int64_t{1} : inputs_.shape.ranks);
  if (kind_ == Kind::kStaged) options.stored_rows = inputs_.shape.rank_batch;
  if (kind_ == Kind::kResident) options.prefetch_batches = kStepsTogetherMax;
  return options;
}

Loader BatchSource::open(int64_t first_step) const {
  return Loader(inputs_.data.schema(), inputs_.preprocessing, inputs_.data.train(),
                inputs_.split.train, options(first_step));
}

TrainingSession::StepInputs BatchSource::step_inputs(const Batch& batch, int64_t step,
                                                     double learning_rate) {
  return {batch.input_bytes(),
          batch.target_bytes(),
          step,
          static_cast<float>(learning_rate),
          batch.samples,
          std::as_bytes(std::span(batch.stored)),
          std::as_bytes(std::span(batch.positions)),
          batch.loss_shares};
}

}  // namespace trainyard
