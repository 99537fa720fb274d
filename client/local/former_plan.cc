// `trainyard plan` on this machine: as the server plans, with the kernels' workspace measured here.
#include <unistd.h>

#include <memory>

#include "client/cli/local_spec.h"
#include "client/cli/temporary_folder.h"
#include "client/local/devices.h"
#include "client/local/work.h"
#include "proto/convert/plan.h"
#include "proto/convert/run.h"
#include "src/base/text.h"
#include "src/planning/fit.h"
#include "src/planning/job_plan.h"
#include "src/planning/sharding_plans.h"
#include "src/planning/weight_match.h"
#include "src/runtime/open_backend.h"
#include "src/train/session.h"

namespace trainyard::cli {
namespace former {

int64_t machine_bytes() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), size = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0 ? int64_t{pages} * size : 0;
}

/// What a server with such a device would choose from.
Status add_sharding_plans(const client::SpecFile& spec, const EngineSpec& engine,
                          const DatasetSchema& schema, ShardingQuery query, v1::JobPlan& plan) {
  const v1::JobFile& file = spec.file;
  query.free = {file.recipe().recompute() == v1::Recipe::RECOMPUTE_UNSPECIFIED,
                !file.recipe().has_accumulate_steps(), file.resources().shard().empty()};
  const int64_t available = plan.fit().bytes_available();
  if (available > 0) query.limit_bytes = available;
  ASSIGN_OR_RETURN(const ShardingPlans shardings,
                   enumerate_sharding_plans(engine.model, engine.recipe, schema, query));
  for (const ShardingRow& row : shardings.rows) {
    v1::ShardingRow& to = *plan.add_sharding_plans();
    to = to_proto(row);
    to.set_bytes_available(available);
  }
  plan.set_sharding_plans_basis(
      "A server would choose so; 'local run' trains as it is written. How long steps take is not "
      "known here. Memory is without the kernels' workspace, which for the job as it is written "
      "is " +
      human_bytes(plan.run().memory().workspace_bytes()) + ".");
  return {};
}

}  // namespace former

Result<v1::JobPlan> plan_here_before(const client::SpecFile& spec,
                                     const LocalPlanOptions& options) {
  using namespace former;
  ASSIGN_OR_RETURN(const EngineSpec engine, local_engine(spec, "plan --local"));
  ASSIGN_OR_RETURN(const std::vector<std::string> devices,
                   pick_devices(spec.file.resources(), options.device));
  const std::string& device = devices.front();
  const auto ranks = std::ssize(devices);
  ASSIGN_OR_RETURN(const int threads, pick_threads(spec.file.resources(), options.threads));
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, open_backend(device, threads));
  ASSIGN_OR_RETURN(const std::filesystem::path algorithms, local_algorithms_folder());
  backend->use_algorithms(
      std::make_shared<Algorithms>(Algorithms::Options{algorithms, /*times=*/false}));
  TemporaryFolder temporary;
  ASSIGN_OR_RETURN(const DatasetSchema schema, read_local_data(spec, temporary.path() / "dataset"));
  auto planned =
      plan_job(engine.model, engine.recipe, schema, options.dump, ranks, backend->traits());
  if (!planned.ok()) return spec.with_positions(std::move(planned).error());

  if (spec.has_weights()) {
    ASSIGN_OR_RETURN(const WeightsFile weights,
                     WeightsFile::open(local_weights(spec, engine.recipe)));
    auto report = plan_initial_weights(engine.model, engine.recipe, schema, weights.tensors());
    if (!report.ok()) return spec.with_positions(std::move(report).error());
    planned->run.initial_weights = std::move(*report);
  }

  ASSIGN_OR_RETURN(const RunShape shape,
                   check_recipe(engine.recipe, engine.model, schema, ranks, backend->traits()));
  ASSIGN_OR_RETURN(RunPrograms programs, compile_run(engine.model, engine.recipe, schema, shape));
  if (Status s = check_kernels(programs, *backend); !s.ok()) return std::move(s).error();
  planned->run.memory.workspace_bytes = measure_workspace(std::move(programs), *backend);
  if (!backend->holds_rows()) planned->run.dataset_bytes = 0;

  v1::JobPlan plan = to_proto(*planned);
  *plan.mutable_spec() = spec.job_spec();
  plan.mutable_spec()->mutable_recipe()->set_precision(to_proto(engine.recipe.precision));
  plan.set_workspace_measured(true);
  plan.set_device(device);
  plan.set_threads(threads);
  plan.mutable_run()->set_device_advice("of this machine");
  v1::MemoryFit& fit = *plan.mutable_fit();
  const bool on_cpu = device == "devices/cpu";
  const int64_t besides = on_cpu ? planned->run.host_bytes : planned->run.dataset_bytes;
  const int64_t needed = planned->run.memory.total() + besides;
  const int64_t available = on_cpu ? machine_bytes() : 0;
  fit.set_bytes_needed(needed);
  fit.set_bytes_available(available);
  fit.set_fits(available == 0 || needed <= available);
  if (!fit.fits()) {
    const FitAdvice advice =
        advise_fit(engine.model, engine.recipe, schema,
                   available - planned->run.memory.workspace_bytes - planned->run.dataset_bytes,
                   ranks, backend->traits());
    fit.set_bytes_short(needed - available);
    set_advice(advice, fit);
    fit.set_message("the job needs " + human_bytes(needed) + " of memory" +
                    (ranks > 1 ? " on each device, " : ", ") + human_bytes(needed - available) +
                    " more than this machine has (" + human_bytes(available) + "); " +
                    describe(advice));
  }
  if (options.shardings) {
    ShardingQuery query;
    query.ranks = ranks;
    query.traits = backend->traits();
    if (Status s = add_sharding_plans(spec, engine, schema, std::move(query), plan); !s.ok()) {
      return std::move(s).error();
    }
  }
  return plan;
}

}  // namespace trainyard::cli
