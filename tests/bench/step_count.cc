#include "tests/bench/step_count.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include "src/job/recipe.h"
#include "src/runtime/algorithms.h"
#include "src/runtime/cuda/backend.h"
#include "src/runtime/forwarding_backend.h"
#include "src/train/session.h"
#include "tests/bench/bench_models.h"

namespace trainyard::bench {
namespace {

using testing::WorkCounts;

/// Selects the library's first proposal, and records the problems.
class NotedAlgorithms final : public Algorithms {
 public:
  NotedAlgorithms() : Algorithms(Options{{}, /*times=*/false}) {}
  bool choose(const std::string&, const std::string& key,
              const AlgorithmProblem& problem) override {
    const bool is_supported = problem.take_first().has_value();
    asked_.push_back({key, is_supported});
    return is_supported;
  }
  std::vector<AskedAlgorithm> take_asked() { return std::exchange(asked_, {}); }

 private:
  std::vector<AskedAlgorithm> asked_;
};

OperandCount operand_of(const Graph& graph, TensorId id) {
  if (id == kNoTensor) return {};
  const TensorInfo& t = graph.tensor(id);
  return {t.type.shape.elements(), t.stored_bytes(), t.type.shape};
}

std::vector<OperandCount> operands_of(const Graph& graph, const std::vector<TensorId>& ids) {
  std::vector<OperandCount> operands;
  for (const TensorId id : ids) operands.push_back(operand_of(graph, id));
  return operands;
}

void add(std::vector<OperandCount>& sums, const std::vector<OperandCount>& more) {
  sums.resize(std::max(sums.size(), more.size()));
  for (size_t i = 0; i < more.size(); ++i) {
    sums[i].elements += more[i].elements;
    sums[i].bytes += more[i].bytes;
    sums[i].shape = more[i].shape;
  }
}

/// Prepares and runs everything with another backend, and counts the submitted operations by node.
class CountingBackend final : public ForwardingBackend {
 public:
  explicit CountingBackend(Backend& inner) : ForwardingBackend(inner) {
    use_algorithms(algorithms_);
  }

  /// From now on, recordings are submitted kernel by kernel, so that each can be counted.
  void begin() { is_on_ = true; }
  std::vector<NodeCount> take_nodes() { return std::move(nodes_); }

  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    std::unique_ptr<Kernel> kernel = ForwardingBackend::prepare(graph, node);
    nodes_.push_back({work_of(graph, node),
                      operands_of(graph, node.inputs),
                      operands_of(graph, node.outputs),
                      algorithms_->take_asked(),
                      1,
                      {},
                      {}});
    return std::make_unique<CountedKernel>(std::move(kernel), *this, nodes_.size() - 1);
  }
  std::unique_ptr<Kernel> prepare_group(const Graph& graph,
                                        std::span<const NodeId> nodes) override {
    std::unique_ptr<Kernel> group = ForwardingBackend::prepare_group(graph, nodes);
    if (group == nullptr) return nullptr;
    NodeCount count{
        work_of(graph, graph.node(nodes.front())), {}, {}, {}, std::ssize(nodes), {}, {}};
    count.work.cost = {};
    for (const NodeId k : nodes) {
      const Node& node = graph.node(k);
      const Cost cost = work_of(graph, node).cost;
      count.work.cost.flops += cost.flops;
      count.work.cost.bytes += cost.bytes;
      add(count.inputs, operands_of(graph, node.inputs));
      add(count.outputs, operands_of(graph, node.outputs));
    }
    nodes_.push_back(std::move(count));
    return std::make_unique<CountedKernel>(std::move(group), *this, nodes_.size() - 1);
  }
  std::unique_ptr<Recording> record(const std::function<void()>& submit) override {
    std::unique_ptr<Recording> recording = ForwardingBackend::record(submit);
    if (recording == nullptr) return nullptr;
    return std::make_unique<CountedRecording>(std::move(recording), submit, *this);
  }
  void enter_lane(Lane lane, bool waits_for_all) override {
    at_ = {lane, lane == Lane::kMain && waits_for_all};
    ForwardingBackend::enter_lane(lane, waits_for_all);
  }

 private:
  class CountedKernel final : public Kernel {
   public:
    CountedKernel(std::unique_ptr<Kernel> kernel, CountingBackend& backend, size_t node)
        : kernel_(std::move(kernel)), backend_(backend), node_(node) {}
    int64_t workspace_bytes() const override { return kernel_->workspace_bytes(); }
    bool accepts_stored_types() const override { return kernel_->accepts_stored_types(); }
    void run(const KernelArgs& args) override {
      const WorkCounts before = testing::submitted_works();
      kernel_->run(args);
      if (!backend_.is_on_) return;
      const WorkCounts after = testing::submitted_works();
      backend_.nodes_[node_].at = backend_.at_;
      WorkCounts& works = backend_.nodes_[node_].works;
      for (size_t i = 0; i < works.by_kind.size(); ++i) {
        works.by_kind[i] += after.by_kind[i] - before.by_kind[i];
      }
    }

   private:
    std::unique_ptr<Kernel> kernel_;
    CountingBackend& backend_;
    size_t node_;
  };
  class CountedRecording final : public Recording {
   public:
    CountedRecording(std::unique_ptr<Recording> recording, std::function<void()> submit,
                     CountingBackend& backend)
        : recording_(std::move(recording)), submit_(std::move(submit)), backend_(backend) {}
    void replay() override { backend_.is_on_ ? submit_() : recording_->replay(); }

   private:
    std::unique_ptr<Recording> recording_;
    std::function<void()> submit_;
    CountingBackend& backend_;
  };

  std::shared_ptr<NotedAlgorithms> algorithms_ = std::make_shared<NotedAlgorithms>();
  std::vector<NodeCount> nodes_;
  LaneStep at_;  // of the kernel that is submitted next
  bool is_on_ = false;
};

}  // namespace

bool NodeCount::touches_half() const {
  const auto is_half = [](const OperandCount& o) { return o.is_half(); };
  return std::ranges::any_of(inputs, is_half) || std::ranges::any_of(outputs, is_half);
}

WorkCounts StepCount::of_nodes() const {
  WorkCounts sum;
  for (const NodeCount& node : nodes) {
    for (size_t i = 0; i < sum.by_kind.size(); ++i) sum.by_kind[i] += node.works.by_kind[i];
  }
  return sum;
}

double StepCount::around_nodes() const {
  return static_cast<double>(recorded.all()) / static_cast<double>(together) -
         static_cast<double>(of_nodes().all());
}

RunPrograms compile_for_gpu(const ModelSpec& model, const Recipe& recipe,
                            const ModelInterface& interface) {
  Result<RunPrograms> programs =
      compile_step(model, recipe, interface, {}, {kCudaAlignment, Processor::kGpu});
  if (!programs.ok()) throw std::runtime_error(programs.error().message);
  return std::move(programs).value();
}

StepCount count_step(RunPrograms programs, int64_t batch, const BenchModel* resident_model) {
  testing::set_counting(true);
  testing::set_device_limit(int64_t{1} << 40);
  const Graph& graph = programs.train.program.graph;
  const auto zeros = [&](TensorId id) {
    if (id == kNoTensor) return std::vector<std::byte>();
    return std::vector<std::byte>(static_cast<size_t>(graph.tensor(id).type.bytes()));
  };
  const std::vector<std::byte> input = zeros(programs.train.input),
                               target = zeros(programs.train.target);

  cuda::CudaBackend cuda(0);
  CountingBackend backend(cuda);
  Session session(std::move(programs), backend);
  StepCount count;
  std::vector<kernels::ResidentSample> samples;
  std::optional<ResidentRowsOf> rows;
  if (resident_model != nullptr) {
    rows.emplace(*resident_model, batch, backend.alignment());
    session.make_resident(rows->source());
    samples = rows->samples(0, batch);
    count.has_resident_rows = true;
  }
  int64_t number = 0;
  const auto run = [&](int64_t steps) {
    session.begin_steps(steps, [&] {
      return Session::StepInputs{input, target, number++, 0.01f, samples};
    });
    for (int64_t i = 0; i < steps; ++i) session.finish_step();
  };
  run(1);  // kernel by kernel
  run(1);  // recorded and replayed
  count.together = session.together(kStepsTogetherMax);
  if (count.together > 1) run(count.together);
  count.recorded = testing::recorded_works();
  const int64_t before = testing::submitted_works().all();
  run(count.together);
  count.outside = testing::submitted_works().all() - before - count.recorded.all();
  backend.begin();
  run(1);
  count.nodes = backend.take_nodes();
  return count;
}

namespace {

BenchModel model_of(const StepCase& step) {
  BenchModel m = bench_model(step.model);
  if (step.dropout > 0) m.model.parameters.set("dropout", step.dropout);
  return m;
}

}  // namespace

RunPrograms compile_case(const StepCase& step) {
  const BenchModel m = model_of(step);
  Recipe recipe;
  recipe.batch_size = step.batch;
  recipe.optimizer = m.optimizer;
  recipe.precision = step.precision;
  return compile_for_gpu(m.model, recipe, m.interface);
}

StepCount count_step(const StepCase& step) {
  const BenchModel m = model_of(step);
  return count_step(compile_case(step), step.batch, ResidentRowsOf::are_resident(m) ? &m : nullptr);
}

}  // namespace trainyard::bench
