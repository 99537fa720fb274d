#include "server/handlers/public_services.h"

#include "server/handlers/backup_stream.h"
#include "server/handlers/dataset_handlers.h"
#include "server/handlers/download_stream.h"
#include "server/handlers/generate_stream.h"
#include "server/handlers/job_handlers.h"
#include "server/handlers/model_handlers.h"
#include "server/handlers/read_spec.h"
#include "server/handlers/system_handlers.h"
#include "server/handlers/unary.h"
#include "server/handlers/upload_stream.h"
#include "server/handlers/watch.h"
#include "server/housekeeping/garbage.h"
#include "server/planning/job_planner.h"
#include "server/rpc/rpc_service.h"
#include "src/base/check.h"

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
                 p.inventory, p.errands, p.forecaster, p.cluster_rates, frame.planning,
                 frame.draining}),
        uploads(p.housekeeping.store, p.housekeeping.files, p.housekeeping.clock, paths,
                p.housekeeping.config.upload_bytes_max, &p.disk),
        jobs({paths, p.housekeeping.clock, p.housekeeping.files, p.housekeeping.store, p.dispatcher,
              planner, p.disk, frame.draining}),
        watch({frame, p.housekeeping.clock, p.housekeeping.store, p.hub, p.dispatcher,
               p.housekeeping.config.watch_streams_max, p.watch_heartbeat_ms}),
        datasets({p.housekeeping.config, paths, p.housekeeping.clock, p.housekeeping.files,
                  p.housekeeping.store, uploads, p.ingest, p.errands, p.disk, frame.executor,
                  frame.draining}),
        models({paths, p.housekeeping.files, p.housekeeping.store, uploads, p.predict, p.errands,
                p.disk, frame.draining}),
        system({p.housekeeping.config, p.housekeeping.store, p.inventory, p.dispatcher,
                p.forecaster, p.cluster_rates, p.disk, p.start_time_us, p.warnings, frame.draining,
                p.drains_changed}),
        garbage(p.housekeeping, uploads),
        backup{paths, p.backing_up, p.backup_stall_ms} {
    uploads.expire();
    add_jobs();
    add_datasets();
    add_models();
    add_system();
    for (const RpcService* rpc : {&job_rpcs, &dataset_rpcs, &model_rpcs, &system_rpcs}) {
      TRAINYARD_CHECK(rpc->is_complete(), rpc->name() + " has a method without a row");
    }
  }

  void add_jobs() {
    Methods rows(frame, job_rpcs);
    rows.add("SubmitJob", jobs, &JobHandlers::submit, frame.planning, &JobHandlers::submit_known);
    rows.add("PlanJob", jobs, &JobHandlers::plan, frame.planning);
    rows.add("ReadSpec", &read_spec);
    rows.add("GetJob", jobs, &JobHandlers::get);
    rows.add("ListJobs", jobs, &JobHandlers::list);
    rows.add("ListQueue", jobs, &JobHandlers::list_queue);
    rows.add("CancelJob", jobs, &JobHandlers::cancel);
    rows.add("PauseJob", jobs, &JobHandlers::pause);
    rows.add("ResumeJob", jobs, &JobHandlers::resume);
    rows.add("RetryJob", jobs, &JobHandlers::retry, frame.planning);
    rows.add("ForkJob", jobs, &JobHandlers::fork, frame.planning);
    rows.add("ListCheckpoints", jobs, &JobHandlers::list_checkpoints);
    rows.add("SetJobPriority", jobs, &JobHandlers::set_priority);
    rows.add("DeleteJob", jobs, &JobHandlers::remove);
    rows.add("SubmitArray", jobs, &JobHandlers::submit_array, frame.arrays);
    rows.add("GetArray", jobs, &JobHandlers::get_array);
    rows.add("ListArrays", jobs, &JobHandlers::list_arrays);
    rows.add("CancelArray", jobs, &JobHandlers::cancel_array);
    rows.add("PauseArray", jobs, &JobHandlers::pause_array);
    rows.add("ResumeArray", jobs, &JobHandlers::resume_array);
    rows.add("DeleteArray", jobs, &JobHandlers::remove_array);
    job_rpcs.add_server_stream(
        "WatchJob", [this](Context* context, const Bytes* in) { return watch.open(context, in); });
  }

  void add_datasets() {
    Methods rows(frame, dataset_rpcs);
    rows.add("GetUpload", datasets, &DatasetHandlers::get_upload);
    rows.add("CreateDataset", datasets, &DatasetHandlers::create);
    rows.add("GetDataset", datasets, &DatasetHandlers::get);
    rows.add("ListDatasets", datasets, &DatasetHandlers::list);
    rows.add("DeleteDataset", datasets, &DatasetHandlers::remove);
    dataset_rpcs.add_client_stream("UploadFile", [this](Context* context, Bytes* out) {
      return open_upload_stream(frame, uploads, context, out);
    });
  }

  void add_models() {
    Methods rows(frame, model_rpcs);
    rows.add("CreateModel", models, &ModelHandlers::create);
    rows.add("ListModels", models, &ModelHandlers::list);
    rows.add("GetModel", models, &ModelHandlers::get);
    rows.add("Predict", models, &ModelHandlers::predict);
    rows.add("Evaluate", models, &ModelHandlers::evaluate);
    rows.add("DeleteModel", models, &ModelHandlers::remove);
    model_rpcs.add_server_stream("DownloadModel", [this](Context* context, const Bytes* in) {
      return open_download_stream(frame, paths, models, context, in);
    });
    model_rpcs.add_server_stream("Generate", [this](Context* context, const Bytes* in) {
      return open_generate_stream(frame, models, context, in);
    });
  }

  void add_system() {
    Methods rows(frame, system_rpcs);
    rows.add("GetServerInfo", system, &SystemHandlers::get_server_info);
    rows.add("ListDevices", system, &SystemHandlers::list_devices);
    rows.add("DrainDevice", system, &SystemHandlers::drain_device);
    rows.add("ResumeDevice", system, &SystemHandlers::resume_device);
    rows.add("CollectGarbage", garbage, &Garbage::collect);
    system_rpcs.add_server_stream("Backup", [this](Context* context, const Bytes* in) {
      return open_backup_stream(frame, backup, context, in);
    });
  }

  CallFrame& frame;
  const StatePaths& paths;
  JobPlanner planner;
  Uploads uploads;
  JobHandlers jobs;
  WatchStreams watch;
  DatasetHandlers datasets;
  ModelHandlers models;
  SystemHandlers system;
  Garbage garbage;
  const BackupSource backup;
  RpcService job_rpcs{*v1::Job::descriptor()->file()};
  RpcService dataset_rpcs{*v1::Dataset::descriptor()->file()};
  RpcService model_rpcs{*v1::Model::descriptor()->file()};
  RpcService system_rpcs{*v1::ServerInfo::descriptor()->file()};
};

PublicServices::PublicServices(const ServiceParts& parts) : impl_(std::make_unique<Impl>(parts)) {}
PublicServices::~PublicServices() = default;

std::vector<grpc::Service*> PublicServices::all() const {
  return {&impl_->job_rpcs, &impl_->dataset_rpcs, &impl_->model_rpcs, &impl_->system_rpcs};
}
std::vector<std::string> PublicServices::names() const {
  return {impl_->job_rpcs.name(), impl_->dataset_rpcs.name(), impl_->model_rpcs.name(),
          impl_->system_rpcs.name()};
}
WatchStreams& PublicServices::watch_streams() { return impl_->watch; }

}  // namespace trainyard::server
