#include "src/planning/programs.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "kernels/alignment.h"
#include "src/base/stop.h"
#include "src/data/load/loader.h"
#include "src/graph/op.h"
#include "src/job/checkpoint_pace.h"
#include "src/job/metrics.h"
#include "src/ops/accumulate_gradient.h"
#include "src/ops/moving_average_update.h"
#include "src/ops/sampled_xent.h"
#include "src/optim/all_reduce.h"
#include "src/optim/sharding.h"
#include "src/parallel/gathered_rows.h"
#include "src/parallel/sampled_head.h"
#include "src/parallel/sparse_lookup.h"
#include "src/parallel/split_head.h"
#include "src/parallel/split_mlp.h"
#include "src/planning/exchanges.h"
#include "src/planning/frozen_storage.h"
#include "src/planning/lora.h"
#include "src/planning/packed_model.h"
#include "src/planning/run_warnings.h"
#include "src/planning/run_work.h"
#include "src/planning/step_slots.h"
#include "src/runtime/communicator.h"

namespace trainyard {
namespace {

/// Adds the input by which the losses of a batch's parts become the mean over the counted tokens of
/// all parts. Returns what the loss is multiplied by: this share, and with it `loss_scale`.
TensorId add_loss_share(Graph& graph, TensorId loss_scale, BoundProgram& train) {
  train.loss_share = graph.add_tensor(
      {"input/loss_share", {{1}, DType::kF32}, Role::kInput, Layout::kRowMajor, kNoNode, {}});
  if (loss_scale == kNoTensor) return train.loss_share;
  const NodeId node = graph
                          .add_node("loss_scale/share", *find_op("Mul"), {},
                                    {loss_scale, train.loss_share}, {"loss_scale.share"})
                          .value();
  return graph.node(node).outputs[0];
}

TensorId add_index_input(Graph& graph, const std::string& name) {
  return graph.add_tensor({name, {{1}, DType::kI64}, Role::kInput, Layout::kRowMajor, kNoNode, {}});
}

/// Returns a tensor with a parameter's shape, sharded over the ranks as the parameter is.
TensorInfo like(const TensorInfo& parameter, std::string name, Role role) {
  TensorInfo info{std::move(name), parameter.type, role, Layout::kRowMajor, kNoNode, {}};
  info.shard_like(parameter);
  return info;
}

/// Adds a tensor of another program of the job, which both programs have at the same address.
TensorId add_shared(Graph& graph, const TensorInfo& t) {
  TensorInfo info = like(t, t.name, t.role);
  info.initializer = t.initializer;
  return graph.add_tensor(std::move(info));
}

/// Makes nodes draw the random numbers that a single device would draw for this rank's rows.
void draw_for_rank(Graph& graph, Rank rank) {
  if (rank.index == 0) return;
  std::vector<Node> nodes = graph.nodes();
  for (Node& node : nodes) {
    if (node.op == sample_classes_op()) continue;  // every rank draws for the whole batch
    if (node.attributes.find("stream") != nullptr) node.attributes.set("rank", rank.index);
  }
  graph.rewrite(std::move(nodes));
}

/// The inputs of updates, as tensors of the graph that contains the updates.
struct UpdateSources {
  std::map<TensorId, TensorId> gradients;  // gradient of each parameter
  std::map<TensorId, ParameterRule> rules;
  TensorId step = kNoTensor;        // kNoTensor: the updates add an input for it if they need it
  TensorId loss_scale = kNoTensor;  // kNoTensor: gradients are not scaled
};

/// Gives the rank its shards of the parameters.
ParameterGathers shard_parameters_of(Graph& graph, Rank rank) {
  ParameterGathers gathers;
  gathers.rank = rank.index;
  gathers.ranks = rank.count;
  gathers.shards = shard_parameters(graph, rank.count);
  return gathers;
}

/// Gives the rank its shards of the parameters and scatters each gradient once it is computed.
ParameterGathers shard_all(Graph& graph, Rank rank, UpdateSources& from) {
  std::map<TensorId, TensorId> whole = from.gradients;
  ParameterGathers gathers = shard_parameters_of(graph, rank);
  // Gradients of layers that are split over the ranks are not scattered.
  std::erase_if(whole, [&](const auto& gradient) {
    return graph.tensor(gradient.first).spread != Spread::kElements;
  });
  const ScatteredGradients scattered = append_reduce_scatter(graph, whole, rank.count, kFreeEarly);
  for (const auto& [parameter, gradient] : scattered.shards) from.gradients[parameter] = gradient;
  return gathers;
}

/// Appends exchange and clipping of gradients and the updates to `graph`; sets ids of `bound`.
void append_update(Graph& graph, const Recipe& recipe, Rank rank, UpdateSources from,
                   BoundProgram& bound) {
  const Updater updater{rank.index, rank.count, shards_optimizer(recipe.shard)};
  std::vector<std::vector<TensorId>> scattered;  // the parameters of each bucket
  // Gradients of parameters of which a rank has only a part are complete without an exchange.
  std::map<TensorId, TensorId> exchanged = from.gradients;
  std::erase_if(exchanged, [&](const auto& gradient) {
    return graph.tensor(gradient.first).spread != Spread::kOwn;
  });
  if (updater.is_sharded) {
    ScatteredGradients gradients = append_reduce_scatter(graph, exchanged, rank.count);
    exchanged = std::move(gradients.shards);
    scattered = std::move(gradients.buckets);
  } else if (rank.count > 1) {
    exchanged = append_all_reduce(graph, exchanged);
  }
  for (const auto& [parameter, gradient] : exchanged) from.gradients[parameter] = gradient;
  const GradientSpec spec{recipe.clip_norm, recipe.clip_value, reports(recipe, "gradient_norm")};
  const PreparedGradients prepared =
      append_clipping(graph, spec, from.gradients, from.loss_scale, updater);
  LossScaling scaling;
  if (from.loss_scale != kNoTensor) {
    scaling = add_loss_scaling(graph, from.loss_scale);
    scaling.norm = prepared.norm;
  }
  const UpdateInputs inputs = append_optimizer(graph, recipe.optimizer, prepared.gradients,
                                               from.step, from.rules, scaling, updater);
  if (!scattered.empty()) append_all_gather(graph, scattered, rank.count);
  if (spec.clip_norm > 0 || spec.measure_norm) bound.gradient_norm = prepared.norm;
  bound.learning_rate = inputs.learning_rate;
  bound.scaled = inputs.scaled;
  bound.step = inputs.step != kNoTensor ? inputs.step : from.step;
}

/// Makes `graph` sum the gradients, and a separate program that updates parameters from the sums.
void accumulate(Graph& graph, const Recipe& recipe, Rank rank, const UpdateSources& from,
                RunPrograms& programs) {
  BoundProgram& train = programs.train;
  train.micro_step = micro_step_input(graph);
  Graph update;
  UpdateSources sums;  // tensors of the graph `update`
  for (const auto& [parameter, gradient] : from.gradients) {
    const TensorInfo p = graph.tensor(parameter);
    TensorInfo info = like(p, p.name + ".grad_sum", Role::kAccumulator);
    info.type = graph.tensor(gradient).type;  // a sparse gradient has only some rows
    const TensorId sum = graph.add_tensor(std::move(info));
    graph
        .add_node(p.name + "/accumulate", *accumulate_gradient_op(),
                  {{"share", 1.0 / static_cast<double>(recipe.accumulate_steps)}},
                  {sum, gradient, train.micro_step}, {}, Phase::kUpdate)
        .value();
    const TensorId there = add_shared(update, p);
    sums.gradients[there] = add_shared(update, graph.tensor(sum));
    sums.rules[there] = from.rules.at(parameter);
    if (const TensorId rows = sums.rules[there].rows; rows != kNoTensor) {
      // A weight and its bias share the tensor of row indices.
      const auto known = update.find_tensor(graph.tensor(rows).name);
      sums.rules[there].rows = known ? *known : add_shared(update, graph.tensor(rows));
    }
  }
  BoundProgram bound;
  if (from.loss_scale != kNoTensor) {
    sums.loss_scale = add_shared(update, graph.tensor(from.loss_scale));
  }
  append_update(update, recipe, rank, std::move(sums), bound);
  bound.program.graph = std::move(update);
  programs.update = std::move(bound);
}

BoundProgram compile_average(const Graph& graph, double decay, const PersistentLayout& persistent) {
  BoundProgram bound;
  Graph average;
  bound.step = add_index_input(average, "step");
  for (const TensorInfo& t : graph.tensors()) {
    if (t.role != Role::kParameter || t.is_half()) continue;  // one of 16 bits is not trained
    const TensorId p = add_shared(average, t);
    const std::string name = t.name + std::string(kAverageSuffix);
    const TensorId mean = average.add_tensor(like(t, name, Role::kOptimizerState));
    average
        .add_node(name + "/update", *moving_average_update_op(), {{"decay", decay}},
                  {mean, p, bound.step}, {}, Phase::kUpdate)
        .value();
  }
  bound.program = compile(std::move(average), {.persistent = &persistent});
  return bound;
}

/// Returns the layout for evaluation, where averaged parameters have their average's address.
PersistentLayout evaluated_layout(PersistentLayout layout, const Graph& graph) {
  for (const TensorInfo& t : graph.tensors()) {
    if (t.role != Role::kParameter) continue;
    const auto average = layout.by_name.find(t.name + std::string(kAverageSuffix));
    if (average != layout.by_name.end()) layout.by_name[t.name] = average->second;
  }
  return layout;
}

template <typename F>
void for_each_program(const RunPrograms& programs, const F& f) {
  f(programs.train.program);
  for (const auto* other : {&programs.update, &programs.average, &programs.evaluate}) {
    if (other->has_value()) f((*other)->program);
  }
}

/// Returns the last program that extends the persistent segment, and thus contains all of it.
const Program& last_of(const RunPrograms& programs) {
  const Program* last = &programs.train.program;
  if (programs.update.has_value()) last = &programs.update->program;
  if (programs.average.has_value()) last = &programs.average->program;
  return *last;
}

/// Returns the layout of a program, extended by the tensors of the programs before it.
PersistentLayout merged(PersistentLayout before, const Program& program) {
  const PersistentLayout own = persistent_layout(program);
  before.by_name.insert(own.by_name.begin(), own.by_name.end());
  before.size_bytes = own.size_bytes;
  return before;
}

PersistentLayout layout_of(const RunPrograms& programs) {
  PersistentLayout layout = persistent_layout(programs.train.program);
  for (const auto* other : {&programs.update, &programs.average}) {
    if (other->has_value()) layout = merged(std::move(layout), (*other)->program);
  }
  return layout;
}

/// Whether a short step runs in two lanes. Several ranks exchange gradients meanwhile, which uses
/// the device; and a job that recomputes activations lacks memory.
bool runs_in_lanes(const Recipe& recipe, DeviceTraits traits, Rank rank) {
  return traits.processor == Processor::kGpu && rank.count == 1 &&
         recipe.recompute == Recompute::kNone;
}

/// Names the tensors of a model that a training program reads and writes.
void bind(const Model& model, int64_t batch_size, BoundProgram& train) {
  train.input = model.input;
  train.positions = model.positions;
  train.target = model.target;
  train.step = model.step;
  train.loss = model.loss;
  train.output = model.output;
  train.batch_size = batch_size;
  train.layers = layer_table(model.graph);
}

/// Replaces layers that are sampled or split over the ranks.
Status lay_out(Model& model, const Recipe& recipe, Rank rank, RunPrograms& programs,
               GatheredTables& tables) {
  if (model.sampling.has_value()) {
    ASSIGN_OR_RETURN(SampledModel sampled, sample_head(model, recipe, rank));
    model = std::move(sampled.model);
    tables = std::move(sampled.tables);
  } else if (splits_head(recipe.shard)) {
    ASSIGN_OR_RETURN(SplitModel split, split_head(model, rank));
    model = std::move(split.model);
    programs.train.split_classes = split.classes;
  }
  if (splits_mlp(recipe.shard)) {
    ASSIGN_OR_RETURN(SplitMlp split, split_mlp(model, rank, kept_copies(recipe)));
    model = std::move(split.model);
    programs.pairs = std::move(split.pairs);
  }
  return {};
}

}  // namespace

int64_t RunPrograms::persistent_bytes() const { return last_of(*this).persistent_bytes; }

Result<RunPrograms> compile_step(const ModelSpec& spec, const Recipe& recipe,
                                 const ModelInterface& interface, Rank rank, DeviceTraits traits,
                                 const std::stop_token& stop) {
  BuildOptions options;
  options.batch_size = recipe.micro_batch() / rank.count;
  options.seed = recipe.seed;
  options.lora = recipe.lora;
  options.class_shares = mixes_classes(recipe.augmentation);
  options.stop = stop;
  ASSIGN_OR_RETURN(Model model, build_model(spec, interface, options));
  if (Status s = check_stop(stop); !s.ok()) return s.error();
  if (Status s = check_lora_model(recipe, model, stop); !s.ok()) return std::move(s).error();
  if (interface.documents && recipe.packing) {
    if (Status s = check_packed_model(model); !s.ok()) return std::move(s).error();
  }
  RunPrograms programs;
  GatheredTables tables;
  if (Status s = lay_out(model, recipe, rank, programs, tables); !s.ok()) {
    return std::move(s).error();
  }
  ASSIGN_OR_RETURN(auto rules,
                   resolve_parameter_rules(model.graph, recipe.optimizer, recipe.parameter_groups,
                                           lora_groups(recipe.lora, model), stop));
  std::set<TensorId> frozen;
  for (const auto& [id, rule] : rules) {
    if (rule.frozen) frozen.insert(id);
  }
  if (Status s = gather_lookups(model, recipe, frozen, rank, tables); !s.ok()) {
    return std::move(s).error();
  }
  programs.lookups = model.lookups;
  programs.weight_decay = describe_weight_decay(model.graph, rules);
  const TensorId loss_scale =
      recipe.precision == Precision::kFp16 ? add_loss_scale(model.graph) : kNoTensor;
  const bool weighs_parts = interface.documents && recipe.accumulate_steps * rank.count > 1;
  const TensorId seed =
      weighs_parts ? add_loss_share(model.graph, loss_scale, programs.train) : loss_scale;
  const auto gradients =
      differentiate_gathered(model.graph, model.loss, frozen, seed, tables, rules);
  draw_for_rank(model.graph, rank);
  if (Status s = check_stop(stop); !s.ok()) return s.error();

  programs.precision = recipe.precision;
  for (const auto& [parameter, gradient] : gradients) {
    programs.trained_parameter_count += model.graph.tensor(parameter).whole_type().shape.elements();
  }
  BoundProgram& train = programs.train;
  bind(model, options.batch_size, train);
  const bool accumulates = recipe.accumulate_steps > 1;
  UpdateSources from{gradients, rules, accumulates ? kNoTensor : model.step, loss_scale};
  ParameterGathers gathers;
  if (shards_parameters(recipe.shard)) gathers = shard_all(model.graph, rank, from);
  if (accumulates) {
    accumulate(model.graph, recipe, rank, from, programs);
  } else {
    append_update(model.graph, recipe, rank, std::move(from), train);
  }
  if (Status s = check_stop(stop); !s.ok()) return s.error();
  store_frozen(recipe, frozen, traits.processor, model.graph);
  train.program = compile(std::move(model.graph), {.recompute = recipe.recompute,
                                                   .precision = recipe.precision,
                                                   .processor = traits.processor,
                                                   .alignment = traits.alignment,
                                                   .gathers = std::move(gathers),
                                                   .two_lanes = runs_in_lanes(recipe, traits, rank),
                                                   .stop = stop});
  if (Status s = check_stop(stop); !s.ok()) return s.error();
  if (programs.update.has_value()) {
    const PersistentLayout layout = persistent_layout(train.program);
    programs.update->program =
        compile(std::move(programs.update->program.graph), {.persistent = &layout});
  }
  if (recipe.ema_decay > 0) {
    programs.average = compile_average(train.program.graph, recipe.ema_decay, layout_of(programs));
  }
  return programs;
}

Result<BoundProgram> compile_training(const ModelSpec& spec, Recipe recipe,
                                      const ModelInterface& interface, int64_t batch_size,
                                      DeviceTraits traits) {
  TRAINYARD_CHECK(recipe.accumulate_steps == 1 && recipe.ema_decay == 0,
                  "a step of this recipe is several programs");
  recipe.batch_size = batch_size;
  ASSIGN_OR_RETURN(RunPrograms programs, compile_step(spec, recipe, interface, {}, traits));
  return std::move(programs.train);
}

namespace {
BoundProgram compile_forward(Model model, int64_t batch_size, const PersistentLayout* persistent,
                             Precision precision, DeviceTraits traits,
                             ParameterGathers gathers = {}) {
  CompileOptions compile_options;
  compile_options.gathers = std::move(gathers);
  compile_options.persistent = persistent;
  compile_options.precision = precision;
  compile_options.alignment = traits.alignment;
  BoundProgram bound;
  bound.input = model.input;
  bound.positions = model.positions;
  bound.output = model.output;
  bound.program = compile(std::move(model.graph), compile_options);
  bound.batch_size = batch_size;
  return bound;
}

/// Compiles the evaluation during training, which reads the parameters of the training programs.
Result<BoundProgram> compile_evaluation(const ModelSpec& spec, const ModelInterface& interface,
                                        const Recipe& recipe, int64_t batch_size, Rank rank,
                                        const std::vector<SplitPair>& pairs,
                                        const PersistentLayout& persistent) {
  if (!splits_layers(recipe.shard) && !shards_parameters(recipe.shard)) {
    return compile_inference(spec, interface, batch_size, &persistent, recipe.precision,
                             recipe.lora);
  }
  BuildOptions options;
  options.batch_size = batch_size;
  options.training = false;
  options.lora = recipe.lora;
  ASSIGN_OR_RETURN(Model model, build_model(spec, interface, options));
  int64_t split_classes = 0;
  if (splits_head(recipe.shard)) {
    ASSIGN_OR_RETURN(SplitModel split, split_head(model, rank));
    model = std::move(split.model);
    split_classes = split.classes;
  }
  if (!pairs.empty()) model = split_mlp(model, rank, pairs);
  ParameterGathers gathers;
  if (shards_parameters(recipe.shard)) gathers = shard_parameters_of(model.graph, rank);
  BoundProgram bound = compile_forward(std::move(model), batch_size, &persistent, recipe.precision,
                                       {}, std::move(gathers));
  bound.split_classes = split_classes;
  return bound;
}

}  // namespace

Result<BoundProgram> compile_inference(const ModelSpec& spec, const ModelInterface& interface,
                                       int64_t batch_size, const PersistentLayout* persistent,
                                       Precision precision, const LoraSpec& lora,
                                       DeviceTraits traits) {
  if (Status s = check_model_precision(precision, traits); !s.ok()) return s.error();
  const BuildOptions options{.batch_size = batch_size, .training = false, .lora = lora};
  ASSIGN_OR_RETURN(Model model, build_model(spec, interface, options));
  return compile_forward(std::move(model), batch_size, persistent, precision, traits);
}

Result<RunPrograms> compile_run(const ModelSpec& model, const Recipe& recipe,
                                const DatasetSchema& schema, const RunShape& shape, int64_t rank,
                                const std::stop_token& stop) {
  const ModelInterface interface = schema.interface(shape.context_length);
  ASSIGN_OR_RETURN(RunPrograms programs,
                   compile_step(model, recipe, interface, {rank, shape.ranks}, shape.traits, stop));
  if (Status s = check_stop(stop); !s.ok()) return s.error();
  if (shape.evaluation_batch > 0) {
    const PersistentLayout layout =
        evaluated_layout(layout_of(programs), programs.train.program.graph);
    ASSIGN_OR_RETURN(programs.evaluate,
                     compile_evaluation(model, interface, recipe, shape.evaluation_batch,
                                        {rank, shape.ranks}, programs.pairs, layout));
  }
  return programs;
}

std::vector<std::string> exchanges_of(const RunPrograms& programs, int64_t micro_batches) {
  std::vector<std::string> names;
  const auto add = [&](const Program& program) {
    for (const NodeId k : program.order) {
      const Node& node = program.graph.node(k);
      if (starts_exchange(node.op->type())) names.push_back(node.name);
    }
  };
  for (int64_t k = 0; k < micro_batches; ++k) add(programs.train.program);
  if (programs.update.has_value()) add(programs.update->program);
  return names;
}

int64_t exchanges_in(const Program& program) {
  return std::ranges::count_if(program.graph.nodes(),
                               [](const Node& node) { return starts_exchange(node.op->type()); });
}

namespace {

/// Returns the exchanges of a step.
std::vector<PlannedExchange> plan_step_exchanges(const RunPrograms& programs,
                                                 const RunShape& shape) {
  std::vector<ExchangingProgram> all = {{programs.train.program, shape.micro_batches}};
  if (programs.update.has_value()) all.push_back({programs.update->program, 1, false});
  return plan_exchanges(all, shape.ranks);
}

/// Returns the bytes that sharding saves on a rank for tensors that `is_counted` accepts.
template <typename F>
int64_t bytes_saved_by_shards(const RunPrograms& programs, const F& is_counted) {
  int64_t bytes = 0;
  std::set<std::string_view> counted;
  const auto add = [&](const Program& program) {
    for (size_t i = 0; i < program.placements.size(); ++i) {
      const TensorInfo& t = program.graph.tensors()[i];
      if (!t.shard_of.has_value() || !is_counted(t)) continue;
      if (!counted.insert(t.name).second) continue;
      bytes +=
          round_up(t.whole_type().bytes(), program.alignment) - program.placements[i].size_bytes;
    }
  };
  add(programs.train.program);
  for (const auto* other : {&programs.update, &programs.average}) {
    if (other->has_value()) add((*other)->program);
  }
  return bytes;
}

std::vector<PlannedPair> plan_pairs(const RunPrograms& programs, int64_t micro_batches) {
  std::vector<PlannedPair> planned;
  const Graph& graph = programs.train.program.graph;
  for (const SplitPair& pair : programs.pairs) {
    PlannedPair& to = planned.emplace_back(
        PlannedPair{layer_of(pair.first), layer_of(pair.second), pair.units, 0, 0});
    // The names of optimizer state and gradient sums begin with "<weight>.", as "<weight>.exp_avg".
    to.saved_bytes = bytes_saved_by_shards(programs, [&](const TensorInfo& t) {
      return std::ranges::any_of(pair.weights, [&](const std::string& weight) {
        return t.name == weight || t.name.starts_with(weight + ".");
      });
    });
    for (const Node& node : graph.nodes()) {
      const bool is_of_pair = node.name.starts_with(pair.first + "/gather") ||
                              node.name.starts_with(pair.second + "/scatter");
      if (!is_of_pair || !exchanges_rows(node.op->type())) continue;
      for (const TensorId id : node.op->type() == "GatherRows" ? node.outputs : node.inputs) {
        to.exchanged_bytes += micro_batches * graph.tensor(id).type.bytes();
      }
    }
  }
  return planned;
}

/// `state_saved_bytes` is the bytes that sharding of the optimizer state saves on each device.
CheckpointPlan plan_checkpoints(const RunPlan& run, const Recipe& recipe,
                                int64_t state_saved_bytes) {
  CheckpointPlan plan;
  const int64_t weights = run.memory.parameter_bytes + run.memory.mapped_bytes +
                          run.memory.state_bytes + run.head_saved_bytes + run.mlp_saved_bytes +
                          run.parameter_saved_bytes;
  plan.size_bytes = weights + run.memory.optimizer_bytes + state_saved_bytes +
                    (recipe.keep_best.metric.empty() ? 0 : weights - run.memory.mapped_bytes);
  if (recipe.checkpoint_every_steps > 0) {
    plan.lost_steps_max = std::min(recipe.checkpoint_every_steps, run.steps_total);
  } else {
    plan.lost_seconds_max = static_cast<double>(checkpoint_interval_max_us(plan.size_bytes)) / 1e6;
  }
  return plan;
}

}  // namespace

RunPlan describe_run(const RunPrograms& programs, const RunShape& shape, const Recipe& recipe) {
  const Program& train = programs.train.program;
  RunPlan plan;
  plan.precision = programs.precision;
  for (const TensorInfo& t : train.graph.tensors()) {
    if (t.role != Role::kParameter || is_lora(t.name)) continue;
    plan.parameter_count += t.whole_type().shape.elements();
  }
  plan.trained_parameter_count = programs.trained_parameter_count;
  plan.steps_total = shape.steps_total;
  plan.steps_per_epoch = shape.steps_per_epoch;
  plan.train_rows = shape.train_rows;
  plan.validation_rows = shape.validation_rows;
  plan.test_rows = shape.test_rows;
  plan.ranks = shape.ranks;
  if (shape.resident.has_value()) {
    plan.dataset_bytes =
        shape.resident->bytes +
        plan_step_slots(programs, shape.micro_batches, {0, shape.ranks}).device_bytes();
  } else if (shape.staged.has_value()) {
    plan.dataset_bytes = shape.staged->bytes;
  }
  plan.flops_per_step = train.flops * shape.micro_batches;
  for (const auto* other : {&programs.update, &programs.average}) {
    if (other->has_value()) plan.flops_per_step += (*other)->program.flops;
  }
  plan.flops_per_step *= shape.ranks;
  plan.memory = train.memory;
  int64_t transient = train.transient_bytes;
  for_each_program(programs, [&](const Program& p) {
    transient = std::max(transient, p.transient_bytes);
    plan.memory.workspace_bytes = std::max(plan.memory.workspace_bytes, p.memory.workspace_bytes);
  });
  plan.memory.activation_bytes += transient - train.transient_bytes;
  // Persistent memory that later programs add is counted as optimizer state.
  plan.memory.optimizer_bytes += programs.persistent_bytes() - train.persistent_bytes;
  plan.exchanges = plan_step_exchanges(programs, shape);
  if (programs.evaluate.has_value()) {
    plan.evaluation_exchanges = plan_exchanges({{programs.evaluate->program}}, shape.ranks);
  }
  plan.shard_saved_bytes = bytes_saved_by_shards(
      programs, [](const TensorInfo& t) { return t.role == Role::kOptimizerState; });
  const auto saved_of_weights = [&](Spread spread) {
    return bytes_saved_by_shards(programs, [=](const TensorInfo& t) {
      return t.role == Role::kParameter && t.spread == spread;
    });
  };
  plan.head_saved_bytes = saved_of_weights(Spread::kClasses);
  plan.mlp_saved_bytes = saved_of_weights(Spread::kUnits);
  plan.parameter_saved_bytes = saved_of_weights(Spread::kElements);
  plan.pairs = plan_pairs(programs, shape.micro_batches);
  plan.checkpoints = plan_checkpoints(plan, recipe, plan.shard_saved_bytes);
  const int64_t batch_bytes = train.memory.input_bytes * shape.micro_batches * shape.ranks;
  // A checkpoint is written from a copy, except for mapped parameters, which are read in place.
  plan.host_bytes = plan.checkpoints.size_bytes - plan.memory.mapped_bytes +
                    (Loader::Options().prefetch_batches + 1) * batch_bytes;
  plan.mapped_parts = mapped_parts(train, recipe.initial_weights.source);
  return plan;
}

}  // namespace trainyard
