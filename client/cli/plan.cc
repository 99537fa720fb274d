// trainyard plan: what a spec would become, before anything runs: each layer, the memory to the
// byte, steps, the device and why. Asks the server, or plans in this process.
#include <unistd.h>

#include <charconv>
#include <memory>

#include "client/cli/command.h"
#include "client/cli/job_file.h"
#include "client/cli/local_job.h"
#include "client/cli/plan_view.h"
#include "client/cli/upload_view.h"
#include "client/lib/names.h"
#include "proto/convert/run.h"
#include "src/base/text.h"
#include "src/runtime/open_backend.h"
#include "src/train/fit.h"
#include "src/train/job_plan.h"
#include "src/train/session.h"
#include "src/train/weight_match.h"

namespace trainyard::cli {
namespace {

struct PlanOptions {
  std::string spec;
  std::vector<std::string> sets;
  std::string layers;
  std::string dump;
  std::string device;
  int64_t threads = 0;
  bool local = false;
  bool upload = false;
};

/// Rows of the layer table; 0 for all.
Result<int64_t> read_layers(const std::string& text) {
  if (text.empty()) return PlanViewOptions().layers_max;
  if (text == "all") return 0;
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 4 || count > 1000000) {
    return usage_error("--layers: " + quoted_value(text) +
                       ", expected all or a number of at least 4");
  }
  return count;
}

int64_t machine_bytes() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), size = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0 ? int64_t{pages} * size : 0;
}

/// Plans as the server does, except for the device: this machine's CPU unless a GPU is requested.
Result<v1::JobPlan> plan_here(const client::SpecFile& spec, const PlanOptions& options,
                              PlanDump dump) {
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
  const TemporaryFolder temporary;
  ASSIGN_OR_RETURN(const DatasetSchema schema, read_local_data(spec, temporary.path() / "dataset"));
  auto planned = plan_job(engine.model, engine.recipe, schema, dump, ranks, backend->traits());
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
  return plan;
}

Result<v1::JobPlan> plan_there(Session& session, const client::SpecFile& spec,
                               v1::PlanJobRequest::Dump dump) {
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  v1::PlanJobRequest request;
  request.set_parent(server->parent());
  request.set_dump(dump);
  ASSIGN_OR_RETURN(*request.mutable_spec(), bring_files_shown(session, spec));
  auto plan = server->plan_job(request);
  if (!plan.ok()) return spec.with_positions(std::move(plan).error());
  return plan;
}

v1::PlanJobRequest::Dump to_wire(PlanDump dump) {
  switch (dump) {
    case PlanDump::kNone:
      return v1::PlanJobRequest::DUMP_UNSPECIFIED;
    case PlanDump::kGraph:
      return v1::PlanJobRequest::GRAPH;
    case PlanDump::kProgram:
      return v1::PlanJobRequest::PROGRAM;
    case PlanDump::kMemory:
      return v1::PlanJobRequest::MEMORY;
  }
  return v1::PlanJobRequest::DUMP_UNSPECIFIED;
}

Result<int> run_plan(Session& session, const PlanOptions& options) {
  ASSIGN_OR_RETURN(const int64_t layers_max, read_layers(options.layers));
  PlanDump dump = PlanDump::kNone;
  if (!options.dump.empty()) {
    const std::optional<PlanDump> found = find_plan_dump(options.dump);
    if (!found) {
      return usage_error("--dump: " + quoted_value(options.dump) +
                         ", expected graph, program or memory");
    }
    dump = *found;
  }
  if (options.local && options.upload)
    return usage_error("--local and --upload exclude each other");
  const TemporaryFolder scratch;
  ASSIGN_OR_RETURN(const client::SpecFile spec,
                   read_job_file(session, options.spec, options.sets, scratch.path()));
  const bool here = options.local || (spec.has_data() && !options.upload);
  if (!here && (!options.device.empty() || options.threads != 0)) {
    return usage_error(
        "--device and --threads apply to plans made here; set resources in the spec");
  }
  ASSIGN_OR_RETURN(const v1::JobPlan plan, here ? plan_here(spec, options, dump)
                                                : plan_there(session, spec, to_wire(dump)));
  if (dump != PlanDump::kNone && !session.machine()) {
    session.out().write(plan.dump());
  } else {
    const PlanViewOptions view{layers_max, session.out().width(), session.out().utf8(),
                               session.out().colour(), session.out().line_width()};
    session.show(plan, [&] { return render_job_plan(plan, view); }, {plan.device()});
  }
  if (spec.file.has_array()) {
    session.hint(
        "This is the plan without the values of `array`. 'trainyard submit --dry-run' checks and "
        "plans every member.");
  }
  if (here && !options.local) {
    session.hint(
        "Planned here, for this machine. With --upload, the server plans, as it does for "
        "'submit'.");
  }
  return static_cast<int>(plan.fit().fits() ? client::kExitOk : client::kExitUsage);
}

}  // namespace

Command plan_command() {
  auto o = std::make_shared<PlanOptions>();
  return {"plan",
          "Show a job's layers, memory and device without running it",
          {"trainyard plan spec.yaml", "trainyard plan spec.yaml --set recipe.batch_size=256",
           "trainyard plan spec.yaml --layers all", "trainyard plan spec.yaml --dump memory",
           "trainyard plan spec.yaml -o json | jq .run.memory"},
          "Prints the layers (output shape, parameters, FLOPs per step), the memory by purpose, "
          "steps and rows, the\ndevice and why it was chosen, and warnings. The server plans a "
          "spec that names a dataset. A spec that names\nfiles is planned here, for this machine, "
          "and nothing is sent; with --upload the files are uploaded as by\n'submit', and the "
          "server plans. The exit code is 2 if the job does not fit.",
          [o](OptionSet& options) {
            options.positional("SPEC", o->spec, "the job's spec file");
            options.texts("--set", "PATH=VALUE", o->sets,
                          "change a field of the spec; may be given several times");
            options.text("--layers", "N", o->layers,
                         "rows of the layer table, or all; default 24, repeated blocks shown once");
            options.text("--dump", "WHAT", o->dump,
                         "print a part of the training program instead: graph, program or memory",
                         {"graph", "program", "memory"});
            options.flag("--local", o->local, "plan here; never ask a server");
            options.flag("--upload", o->upload, "upload the spec's files and let the server plan");
            options.text("--device", "DEVICE", o->device,
                         "for a plan made here: cpu or gpu; default: the spec's, auto is cpu",
                         {"cpu", "gpu"});
            options.integer(
                "--threads", "N", o->threads,
                "for a plan made here: CPU threads; default: the spec's, then all cores");
          },
          [o](Session& session) { return run_plan(session, *o); }};
}

}  // namespace trainyard::cli
