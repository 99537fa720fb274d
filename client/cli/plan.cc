// trainyard plan: shows how a spec would run before anything runs: each layer, the memory to the
// byte, the steps, the device and the reason for it. The server plans, or trainyard-local on this
// machine.
#include <unistd.h>

#include <charconv>
#include <memory>

#include "client/cli/command.h"
#include "client/cli/job_file.h"
#include "client/cli/local_program.h"
#include "client/cli/local_work.h"
#include "client/cli/plan_view.h"
#include "client/cli/pretrained_model.h"
#include "client/cli/sharding_view.h"
#include "client/cli/temporary_folder.h"
#include "client/cli/upload_view.h"
#include "src/base/text.h"
#include "src/planning/job_plan.h"
#include "src/planning/known_gpus.h"

namespace trainyard::cli {
namespace {

constexpr client::Rpc<v1::PlanJobRequest, v1::JobPlan> kPlanJob{"JobService/PlanJob"};

struct PlanOptions {
  std::string spec;
  std::vector<std::string> sets;
  std::string layers;
  std::string dump;
  std::string device;
  int64_t threads = 0;
  std::string gpus;
  bool shardings = false;
  bool local = false;
  bool upload = false;
};

std::vector<std::string> gpu_choices() {
  std::vector<std::string> names = {"all"};
  for (const KnownGpu& gpu : known_gpus()) names.emplace_back(gpu.name);
  return names;
}

/// Parses --layers: the maximum number of rows of the layer table; 0 for all.
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

using KnownGpus = std::vector<const KnownGpu*>;

Result<v1::JobPlan> plan_there(Session& session, const client::SpecFile& spec,
                               v1::PlanJobRequest::Dump dump, bool shardings,
                               const KnownGpus& gpus) {
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  v1::PlanJobRequest request;
  request.set_parent(server->parent());
  request.set_dump(dump);
  request.set_sharding_plans(shardings);
  for (const KnownGpu* gpu : gpus) request.add_compared_gpus(std::string(gpu->name));
  ASSIGN_OR_RETURN(*request.mutable_spec(), upload_files_shown(session, spec));
  auto plan = server->call(kPlanJob, request);
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
  if (options.shardings && dump != PlanDump::kNone)
    return usage_error("--sharding-plans and --dump exclude each other");
  if (!options.gpus.empty() && (options.shardings || dump != PlanDump::kNone)) {
    return usage_error("--gpu excludes --sharding-plans and --dump");
  }
  if (options.local && options.upload)
    return usage_error("--local and --upload exclude each other");
  KnownGpus gpus;
  if (!options.gpus.empty()) {
    ASSIGN_OR_RETURN(gpus, find_known_gpus(options.gpus, "--gpu"));
  }
  const bool from_stdin = options.spec == "-";
  if (from_stdin) {
    if (Status s = keep_standard_input(spec::kBytesMax); !s.ok()) return std::move(s).error();
  }
  ASSIGN_OR_RETURN(client::SpecFile spec, read_job_spec(options.spec, options.sets));
  const bool here = options.local || (spec.has_data() && !options.upload);
  if (!here && (!options.device.empty() || options.threads != 0)) {
    return usage_error(
        "--device and --threads apply to plans made here; set resources in the spec");
  }
  const LocalWork* local = nullptr;
  if (here) {
    // trainyard-local reads standard input again
    if (from_stdin) ::lseek(STDIN_FILENO, 0, SEEK_SET);
    ASSIGN_OR_RETURN(local, session.local("with --upload, the server plans"));
  }
  TemporaryFolder scratch;
  const WeightsNeed need = here ? WeightsNeed::kShapes : WeightsNeed::kNumbers;
  if (Status s = import_models(session, scratch, spec, need); !s.ok()) return std::move(s).error();
  if (Status s = here ? Status() : check_has_weights(spec); !s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(
      const v1::JobPlan plan,
      here ? local->plan(spec, {dump, options.device, options.threads, options.shardings, gpus})
           : plan_there(session, spec, to_wire(dump), options.shardings, gpus));
  if (dump != PlanDump::kNone && !session.machine()) {
    session.out().write(plan.dump());
  } else {
    const PlanViewOptions view{layers_max, session.out().width(), session.out().utf8(),
                               session.out().colour(), session.out().line_width()};
    const auto shown = [&] {
      return options.shardings ? render_sharding_plans(plan, session.out())
                               : render_job_plan(plan, view);
    };
    session.show(plan, shown, {plan.device()});
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
           "trainyard plan spec.yaml --layers all", "trainyard plan spec.yaml --sharding-plans",
           "trainyard plan spec.yaml --gpu t4,h100", "trainyard plan spec.yaml --dump memory",
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
            options.flag("--sharding-plans", o->shardings,
                         "compare ways to shard, recompute and split the batch instead: memory, "
                         "time of a step, and why one was chosen");
            options.text("--gpu", "NAMES", o->gpus,
                         "compare the CPU with GPUs that you need not have, by assumed speed and "
                         "price: names such as t4,l4,h100, or all",
                         gpu_choices());
            options.text("--dump", "WHAT", o->dump,
                         "print a part of the training program instead: graph, program or memory",
                         {"graph", "program", "memory"});
            options.flag("--local", o->local, "plan here, without a server");
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
