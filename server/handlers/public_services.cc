#include "server/handlers/public_services.h"

#include <spdlog/spdlog.h>

#include "server/config/log.h"
#include "server/handlers/access.h"
#include "server/handlers/backup_stream.h"
#include "server/handlers/dataset_handlers.h"
#include "server/handlers/download_stream.h"
#include "server/handlers/generate_stream.h"
#include "server/handlers/job_handlers.h"
#include "server/handlers/model_handlers.h"
#include "server/handlers/people_handlers.h"
#include "server/handlers/quota_handlers.h"
#include "server/handlers/read_spec.h"
#include "server/handlers/system_handlers.h"
#include "server/handlers/unary.h"
#include "server/handlers/upload_stream.h"
#include "server/handlers/watch.h"
#include "server/housekeeping/garbage.h"
#include "server/planning/job_planner.h"
#include "server/rpc/rpc_service.h"
#include "src/base/check.h"
#include "trainyard/v1/people_service.pb.h"

namespace trainyard::server {
namespace {

using Context = grpc::CallbackServerContext;
using Bytes = grpc::ByteBuffer;

}  // namespace

struct PublicServices::Impl {
  explicit Impl(const ServiceParts& p)
      : frame(p.frame),
        paths(p.housekeeping.paths),
        planner({p.housekeeping.config, paths, p.housekeeping.clock, p.housekeeping.store,
                 p.inventory, p.one_shot_tasks, p.forecaster, p.cluster_rates, frame.people,
                 frame.planning, frame.draining}),
        uploads(p.housekeeping.store, p.housekeeping.files, p.housekeeping.clock, paths,
                p.housekeeping.config.upload_bytes_max, &p.disk),
        jobs{paths,
             p.housekeeping.clock,
             p.housekeeping.files,
             p.housekeeping.store,
             p.dispatcher,
             planner,
             frame.people,
             p.disk,
             frame.draining},
        watch({frame, p.housekeeping.clock, p.housekeeping.store, p.hub, p.dispatcher,
               p.housekeeping.config.watch_streams_max, p.watch_heartbeat_ms}),
        datasets{p.housekeeping.config,
                 paths,
                 p.housekeeping.clock,
                 p.housekeeping.files,
                 p.housekeeping.store,
                 uploads,
                 p.ingest,
                 p.one_shot_tasks,
                 p.disk,
                 frame.people,
                 frame.executor,
                 frame.draining},
        call_quotas(p.housekeeping.store.quotas(), p.housekeeping.clock),
        models{paths,
               p.housekeeping.files,
               p.housekeeping.store,
               uploads,
               p.predict,
               p.one_shot_tasks,
               p.disk,
               frame.people,
               call_quotas,
               frame.draining},
        system{p.housekeeping.config, p.housekeeping.store, p.inventory,    p.dispatcher,
               p.forecaster,          p.cluster_rates,      p.disk,         frame.people,
               p.start_time_us,       p.warnings,           frame.draining, p.drains_changed},
        quotas{p.housekeeping.store, p.housekeeping.clock, frame.people, call_quotas,
               p.quotas_changed},
        people{p.housekeeping.store, frame.people, p.check_devices, p.devices_changed},
        garbage(p.housekeeping, uploads),
        backup{paths, p.backing_up, p.backup_stall_ms} {
    uploads.expire();
    if (Status s = call_quotas.reload(); !s.ok()) {
      spdlog::error("event=quotas_not_read {}", kv("message", s.error().message));
    }
    add_jobs();
    add_datasets();
    add_models();
    add_system();
    add_people();
    for (const RpcService* rpc :
         {&job_rpcs, &dataset_rpcs, &model_rpcs, &system_rpcs, &people_rpcs}) {
      TRAINYARD_CHECK(rpc->is_complete(), rpc->name() + " has a method without a row");
      check_access_rows(rpc->descriptor());
    }
  }

  void add_jobs() {
    Methods rows(frame, job_rpcs);
    add_job_rows(rows, jobs, frame.planning);
    add_array_rows(rows, jobs, frame.arrays);
    add_fork_rows(rows, jobs, frame.planning);
    rows.add("ReadSpec", &read_spec);
    job_rpcs.add_server_stream(
        "WatchJob", [this](Context* context, const Bytes* in) { return watch.open(context, in); });
  }

  void add_datasets() {
    Methods rows(frame, dataset_rpcs);
    add_dataset_rows(rows, datasets);
    dataset_rpcs.add_client_stream("UploadFile", [this](Context* context, Bytes* out) {
      return open_upload_stream(frame, uploads, context, out);
    });
  }

  void add_models() {
    Methods rows(frame, model_rpcs);
    add_model_rows(rows, models);
    model_rpcs.add_server_stream("DownloadModel", [this](Context* context, const Bytes* in) {
      return open_download_stream(frame, paths, models, context, in);
    });
    model_rpcs.add_server_stream("Generate", [this](Context* context, const Bytes* in) {
      return open_generate_stream(frame, models, context, in);
    });
  }

  void add_system() {
    Methods rows(frame, system_rpcs);
    add_system_rows(rows, system);
    add_quota_rows(rows, quotas);
    rows.add("CollectGarbage", garbage, &Garbage::collect);
    system_rpcs.add_server_stream("Backup", [this](Context* context, const Bytes* in) {
      return open_backup_stream(frame, backup, context, in);
    });
  }

  void add_people() {
    Methods rows(frame, people_rpcs);
    add_people_rows(rows, people);
  }

  CallFrame& frame;
  const StatePaths& paths;
  JobPlanner planner;
  Uploads uploads;
  const JobParts jobs;
  WatchStreams watch;
  const DatasetParts datasets;
  CallQuotas call_quotas;
  const ModelParts models;
  const SystemParts system;
  const QuotaParts quotas;
  const PeopleParts people;
  Garbage garbage;
  const BackupSource backup;
  RpcService job_rpcs{*v1::Job::descriptor()->file()};
  RpcService dataset_rpcs{*v1::Dataset::descriptor()->file()};
  RpcService model_rpcs{*v1::Model::descriptor()->file()};
  RpcService system_rpcs{*v1::ServerInfo::descriptor()->file()};
  RpcService people_rpcs{*v1::Person::descriptor()->file()};
};

PublicServices::PublicServices(const ServiceParts& parts) : impl_(std::make_unique<Impl>(parts)) {}
PublicServices::~PublicServices() = default;

std::vector<grpc::Service*> PublicServices::all() const {
  return {&impl_->job_rpcs, &impl_->dataset_rpcs, &impl_->model_rpcs, &impl_->system_rpcs,
          &impl_->people_rpcs};
}
std::vector<std::string> PublicServices::names() const {
  return {impl_->job_rpcs.name(), impl_->dataset_rpcs.name(), impl_->model_rpcs.name(),
          impl_->system_rpcs.name(), impl_->people_rpcs.name()};
}
WatchStreams& PublicServices::watch_streams() { return impl_->watch; }

}  // namespace trainyard::server
