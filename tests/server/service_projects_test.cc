// Tests of two projects on one server: what has the same name in both, what one shares with the
// other, and what one must not learn of the other. Who may call what is tested in
// service_access_test.cc.
#include "tests/server/access_support.h"
#include "tests/server/service_support.h"
#include "trainyard/v1/people_service.grpc.pb.h"

namespace trainyard::server {
namespace {

constexpr const char* kRows =
    "a,b,species\n1,2,x\n2,3,y\n3,4,x\n4,5,y\n5,6,x\n6,7,y\n7,8,x\n8,9,y\n";

class ServiceProjects : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    people_ = v1::PeopleService::NewStub(channel_);
    v1::CreateProjectRequest request;
    request.set_project_id("lab");
    v1::Project project;
    const grpc::Status s = people_->CreateProject(context().get(), request, &project);
    ASSERT_TRUE(s.ok()) << s.error_message();
  }

  grpc::Status upload_to(const std::string& project, const std::string& content) {
    auto c = context();
    v1::Upload response;
    auto stream = datasets_->UploadFile(c.get(), &response);
    v1::UploadFileRequest request;
    request.mutable_start()->set_parent("projects/" + project);
    request.mutable_start()->set_sha256(sha256_hex(content));
    request.mutable_start()->set_size_bytes(static_cast<int64_t>(content.size()));
    stream->Write(request);
    request.mutable_chunk()->set_offset(0);
    request.mutable_chunk()->set_data(content);
    request.mutable_chunk()->set_crc32c(crc32c(content));
    stream->Write(request);
    request.mutable_finish();
    stream->Write(request);
    stream->WritesDone();
    const grpc::Status s = stream->Finish();
    EXPECT_TRUE(!s.ok() ||
                response.name() == "projects/" + project + "/uploads/" + sha256_hex(content));
    return s;
  }
  grpc::Status create_in(const std::string& project, const std::string& id,
                         const std::string& content, v1::Dataset* dataset) {
    v1::CreateDatasetRequest request;
    request.set_parent("projects/" + project);
    request.set_dataset_id(id);
    v1::DatasetSource& source = *request.mutable_spec()->add_sources();
    source.set_role(v1::DatasetSource::DATA);
    source.set_sha256(sha256_hex(content));
    request.mutable_spec()->mutable_csv()->set_target("species");
    return datasets_->CreateDataset(context().get(), request, dataset);
  }
  /// Creates a READY dataset.
  v1::Dataset dataset_in(const std::string& project, const std::string& id) {
    EXPECT_TRUE(upload_to(project, kRows).ok());
    v1::Dataset dataset;
    const grpc::Status s = create_in(project, id, kRows, &dataset);
    EXPECT_TRUE(s.ok()) << s.error_message();
    EXPECT_TRUE(eventually([&] {
      dataset = get_dataset(dataset.name());
      return dataset.state() != v1::Dataset::INGESTING;
    }));
    EXPECT_EQ(dataset.state(), v1::Dataset::READY) << dataset.message();
    return dataset;
  }
  static v1::SubmitJobRequest job_in(const std::string& project, const std::string& id,
                                     const std::string& dataset, const std::string& act = "") {
    v1::SubmitJobRequest request = job_request(id, act);
    request.set_parent("projects/" + project);
    request.mutable_spec()->mutable_dataset()->set_name(dataset);
    request.mutable_spec()->mutable_recipe()->set_batch_size(4);
    return request;
  }
  v1::Job job_named(const std::string& name) {
    v1::GetJobRequest request;
    request.set_name(name);
    v1::Job job;
    const grpc::Status s = jobs_->GetJob(context().get(), request, &job);
    EXPECT_TRUE(s.ok()) << s.error_message();
    return job;
  }
  v1::Job ended(const std::string& name) {
    v1::Job job;
    EXPECT_TRUE(eventually([&] {
      job = job_named(name);
      return job.state() >= v1::SUCCEEDED;
    }));
    return job;
  }
  std::vector<std::string> jobs_of(const std::string& parent) {
    v1::ListJobsRequest request;
    request.set_parent(parent);
    v1::ListJobsResponse response;
    EXPECT_TRUE(jobs_->ListJobs(context().get(), request, &response).ok());
    std::vector<std::string> names;
    for (const v1::Job& job : response.jobs()) names.push_back(job.name());
    return names;
  }
  grpc::Status share(const std::string& name, bool end = false) {
    v1::ShareRequest request;
    request.set_name(name);
    request.set_with_project("projects/lab");
    v1::ShareEntry entry;
    google::protobuf::Empty nothing;
    return end ? people_->Unshare(context().get(), request, &nothing)
               : people_->Share(context().get(), request, &entry);
  }

  std::unique_ptr<v1::PeopleService::Stub> people_;
};

TEST_F(ServiceProjects, JobsOfTwoProjectsMayHaveTheSameName) {
  dataset_in("default", "iris");
  dataset_in("lab", "iris");
  v1::Job ours;
  v1::Job theirs;
  ASSERT_TRUE(submit(job_in("default", "same", "iris", "wait_for_stop"), &ours).ok());
  ASSERT_TRUE(submit(job_in("lab", "same", "iris"), &theirs).ok());
  EXPECT_EQ(ours.name(), "projects/default/jobs/same");
  EXPECT_EQ(ours.spec().dataset().name(), "projects/default/datasets/iris@1");
  EXPECT_EQ(theirs.name(), "projects/lab/jobs/same");
  EXPECT_EQ(theirs.spec().dataset().name(), "projects/lab/datasets/iris@1");

  EXPECT_EQ(ended("projects/lab/jobs/same").state(), v1::SUCCEEDED);
  v1::Job cancelled;
  ASSERT_TRUE(cancel("same", &cancelled).ok());
  EXPECT_EQ(ended("projects/default/jobs/same").state(), v1::CANCELLED);
  EXPECT_EQ(jobs_of(""), std::vector<std::string>{"projects/default/jobs/same"});
  EXPECT_EQ(jobs_of("projects/lab"), std::vector<std::string>{"projects/lab/jobs/same"});
  EXPECT_EQ(jobs_of("projects/-"),
            (std::vector<std::string>{"projects/lab/jobs/same", "projects/default/jobs/same"}));

  v1::GetModelRequest get;
  v1::Model model;
  get.set_name("projects/default/models/same");
  EXPECT_EQ(reason_of(models_->GetModel(context().get(), get, &model)), "MODEL_NOT_FOUND");
  get.set_name("projects/lab/models/same");
  ASSERT_TRUE(models_->GetModel(context().get(), get, &model).ok());
  EXPECT_EQ(model.job(), "projects/lab/jobs/same");
  EXPECT_EQ(model.dataset(), "projects/lab/datasets/iris@1");
  EXPECT_EQ(model.owner(), theirs.owner());
  EXPECT_NE(model.owner(), "");

  v1::DeleteJobRequest remove;
  remove.set_name("projects/default/jobs/same");
  google::protobuf::Empty nothing;
  ASSERT_TRUE(jobs_->DeleteJob(context().get(), remove, &nothing).ok());
  EXPECT_EQ(job_named("projects/lab/jobs/same").uid(), theirs.uid());
}

// A spec that one project's submit was accepted with is not accepted for another one.
TEST_F(ServiceProjects, AnAcceptedSpecIsOneOfItsProject) {
  dataset_in("default", "iris");
  v1::Job job;
  ASSERT_TRUE(submit(job_in("default", "first", "iris"), &job).ok());
  EXPECT_EQ(reason_of(submit(job_in("lab", "first", "iris"), &job)), "DATASET_NOT_FOUND");
  v1::SubmitJobRequest repeated = job_in("default", "again", "iris");
  repeated.set_request_id("7d444840-9dc0-11d1-b245-5ffdce74fad2");
  ASSERT_TRUE(submit(repeated, &job).ok());
  repeated.set_parent("projects/lab");
  EXPECT_EQ(reason_of(submit(repeated, &job)), "DATASET_NOT_FOUND")
      << "a request is one of its project";
}

TEST_F(ServiceProjects, ADatasetIsMadeOnlyOfBytesThatTheProjectHasSent) {
  const v1::Dataset ours = dataset_in("default", "iris");
  v1::GetUploadRequest get;
  get.set_name("projects/lab/uploads/" + sha256_hex(kRows));
  get.set_size_bytes(static_cast<int64_t>(std::string(kRows).size()));
  v1::Upload upload;
  ASSERT_TRUE(datasets_->GetUpload(context().get(), get, &upload).ok());
  EXPECT_FALSE(upload.complete());
  EXPECT_EQ(upload.committed_size(), 0);
  EXPECT_TRUE(upload.size_is_new());
  v1::Dataset theirs;
  EXPECT_EQ(reason_of(create_in("lab", "iris", kRows, &theirs)), "UPLOAD_INCOMPLETE");
  v1::CreateModelRequest weights;
  weights.set_parent("projects/lab");
  weights.set_sha256(sha256_hex(kRows));
  v1::Model model;
  EXPECT_EQ(reason_of(models_->CreateModel(context().get(), weights, &model)), "UPLOAD_INCOMPLETE");

  theirs = dataset_in("lab", "iris");
  EXPECT_EQ(theirs.digest(), ours.digest());
  EXPECT_EQ(theirs.owner(), ours.owner());
  EXPECT_NE(theirs.owner(), "");
  v1::DeleteDatasetRequest remove;
  remove.set_name("projects/default/datasets/iris");
  google::protobuf::Empty nothing;
  ASSERT_TRUE(datasets_->DeleteDataset(context().get(), remove, &nothing).ok());
  v1::Job job;
  ASSERT_TRUE(submit(job_in("lab", "after", "iris"), &job).ok());
  EXPECT_EQ(ended("projects/lab/jobs/after").state(), v1::SUCCEEDED)
      << "the ingested form is still there";
}

TEST_F(ServiceProjects, AJobUsesAnotherProjectsDataOnlyIfItIsSharedWithItsProject) {
  dataset_in("default", "iris");
  const std::string header =
      R"({"fc1.weight":{"dtype":"F32","shape":[8,2],"data_offsets":[0,64]}})";
  const std::string weights_content = std::string(1, static_cast<char>(header.size())) +
                                      std::string(7, '\0') + header + std::string(64, '\0');
  ASSERT_TRUE(upload_to("default", weights_content).ok());
  v1::CreateModelRequest base;
  base.set_model_id("base");
  base.set_sha256(sha256_hex(weights_content));
  v1::Model model;
  const grpc::Status created = models_->CreateModel(context().get(), base, &model);
  ASSERT_TRUE(created.ok()) << created.error_message();
  v1::Job job;
  const v1::SubmitJobRequest of_theirs = job_in("lab", "user", "projects/default/datasets/iris");
  const grpc::Status not_shared = submit(of_theirs, &job);
  EXPECT_EQ(reason_of(not_shared), "DATASET_NOT_FOUND");
  EXPECT_EQ(not_shared.error_message(),
            "there is no dataset 'projects/default/datasets/iris' that is shared with "
            "projects/lab.");
  const grpc::Status absent = submit(job_in("lab", "user", "projects/default/datasets/none"), &job);
  EXPECT_EQ(reason_of(absent), "DATASET_NOT_FOUND");
  EXPECT_EQ(absent.error_message(),
            "there is no dataset 'projects/default/datasets/none' that is shared with "
            "projects/lab.")
      << "the same as for one that exists";

  ASSERT_TRUE(share("projects/default/datasets/iris@1").ok());
  v1::SubmitJobRequest with_weights = of_theirs;
  v1::InitialWeights& initial =
      *with_weights.mutable_spec()->mutable_recipe()->mutable_initial_weights();
  initial.set_model("projects/default/models/base");
  initial.set_partial(true);
  const grpc::Status weights = submit(with_weights, &job);
  EXPECT_EQ(reason_of(weights), "MODEL_NOT_FOUND");
  EXPECT_EQ(weights.error_message(),
            "recipe.initial_weights.model: there is no model 'projects/default/models/base' that "
            "is shared with projects/lab.");
  ASSERT_TRUE(share("projects/default/models/base").ok());
  (*with_weights.mutable_spec()->mutable_labels())["act"] = "wait_for_stop";
  const grpc::Status accepted = submit(with_weights, &job);
  ASSERT_TRUE(accepted.ok()) << accepted.error_message();
  EXPECT_EQ(job.spec().dataset().name(), "projects/default/datasets/iris@1");

  // While the job is unfinished its data stays, and its project does not learn of the job.
  v1::DeleteDatasetRequest remove;
  remove.set_name("projects/default/datasets/iris");
  google::protobuf::Empty nothing;
  const grpc::Status in_use = datasets_->DeleteDataset(context().get(), remove, &nothing);
  EXPECT_EQ(reason_of(in_use), "DATASET_IN_USE");
  EXPECT_EQ(in_use.error_message().find("user"), std::string::npos) << in_use.error_message();
  v1::DeleteModelRequest remove_model;
  remove_model.set_name("projects/default/models/base");
  EXPECT_EQ(reason_of(models_->DeleteModel(context().get(), remove_model, &nothing)),
            "MODEL_IN_USE");

  ASSERT_TRUE(share("projects/default/datasets/iris@1", /*end=*/true).ok());
  EXPECT_EQ(reason_of(submit(job_in("lab", "late", "projects/default/datasets/iris"), &job)),
            "DATASET_NOT_FOUND")
      << "at once";
  v1::CancelJobRequest cancel;
  cancel.set_name("projects/lab/jobs/user");
  ASSERT_TRUE(jobs_->CancelJob(context().get(), cancel, &job).ok());
  EXPECT_EQ(ended("projects/lab/jobs/user").state(), v1::CANCELLED);
  EXPECT_TRUE(datasets_->DeleteDataset(context().get(), remove, &nothing).ok());
}

TEST_F(ServiceProjects, ArraysUseSharedData) {
  dataset_in("default", "iris");
  v1::SubmitArrayRequest request;
  request.set_parent("projects/lab");
  request.set_array_id("sweep");
  *request.mutable_spec() = job_in("lab", "", "projects/default/datasets/iris").spec();
  (*request.mutable_array()->mutable_grid())["recipe.seed"].add_values("1");
  v1::JobArray array;
  EXPECT_EQ(reason_of(jobs_->SubmitArray(context().get(), request, &array)), "DATASET_NOT_FOUND");
  ASSERT_TRUE(share("projects/default/datasets/iris").ok());
  const grpc::Status s = jobs_->SubmitArray(context().get(), request, &array);
  ASSERT_TRUE(s.ok()) << s.error_message();
  EXPECT_EQ(array.name(), "projects/lab/arrays/sweep");
  EXPECT_EQ(ended("projects/lab/jobs/sweep-0").state(), v1::SUCCEEDED);

  v1::ListArraysRequest list;
  v1::ListArraysResponse arrays;
  ASSERT_TRUE(jobs_->ListArrays(context().get(), list, &arrays).ok());
  EXPECT_EQ(arrays.arrays_size(), 0) << "of the project default";
  v1::ListJobsRequest members;
  members.set_array("projects/lab/arrays/sweep");
  v1::ListJobsResponse found;
  EXPECT_EQ(reason_of(jobs_->ListJobs(context().get(), members, &found)), "FIELD_CONFLICT");
  members.set_parent("projects/lab");
  ASSERT_TRUE(jobs_->ListJobs(context().get(), members, &found).ok());
  EXPECT_EQ(found.jobs_size(), 1);
}

TEST_F(ServiceProjects, AJobWaitsOnlyForJobsOfItsProject) {
  dataset_in("lab", "iris");
  v1::SubmitJobRequest request = job_in("lab", "second", "iris");
  request.mutable_spec()->add_after()->set_job("projects/default/jobs/first");
  v1::Job job;
  const grpc::Status s = submit(request, &job);
  EXPECT_EQ(reason_of(s), "FIELD_UNSUPPORTED");
  EXPECT_NE(s.error_message().find("is of another project, expected a job of projects/lab"),
            std::string::npos)
      << s.error_message();
}

/// What people see who are in one project only; "vision" and "secret" have the same objects.
class ServiceProjectMembers : public ServiceAccessTest {
 protected:
  v1::Model model(const char* caller, const std::string& name) {
    v1::Model model;
    return parsed(must(as(caller), "GetModel", "name: '" + name + "'"), model);
  }
  int64_t queued(const char* caller) {
    v1::ServerInfo info;
    return parsed(must(as(caller), "GetServerInfo", ""), info).jobs_queued();
  }
  std::vector<std::string> projects_listed(const char* caller) {
    v1::ListJobsResponse response;
    parsed(must(as(caller), "ListJobs", "parent: 'projects/-' page_size: 1000"), response);
    std::set<std::string> projects;
    for (const v1::Job& job : response.jobs()) {
      projects.insert(job.name().substr(0, job.name().find("/jobs/")));
    }
    return {projects.begin(), projects.end()};
  }
};

TEST_F(ServiceProjectMembers, CountsAndListsAreOfTheCallersProjects) {
  must(as("other"), "SubmitJob",
       "parent: 'projects/secret' job_id: 'waits' " + replaced(kSpec, "$P", "secret"));
  EXPECT_EQ(queued("other"), 1);
  EXPECT_EQ(queued("member"), 0);
  EXPECT_EQ(queued("stranger"), 0);
  EXPECT_EQ(queued("operator"), 1) << "operators have the whole queue";
  EXPECT_EQ(queued("admin"), 1);
  EXPECT_EQ(projects_listed("other"), std::vector<std::string>{"projects/secret"});
  EXPECT_EQ(projects_listed("member"), std::vector<std::string>{"projects/vision"});
  EXPECT_EQ(projects_listed("stranger"), std::vector<std::string>());
  EXPECT_EQ(projects_listed("admin"),
            (std::vector<std::string>{"projects/secret", "projects/vision"}));
}

TEST_F(ServiceProjectMembers, ASharedModelTellsNothingElseOfItsProject) {
  must(nullptr, "ResumeDevice", "name: 'devices/cpu'");
  must(as("other"), "SubmitJob",
       "parent: 'projects/secret' job_id: 'trained' " + replaced(kSpec, "$P", "secret"));
  ASSERT_TRUE(eventually([&] {
    v1::Job job;
    return parsed(must(as("other"), "GetJob", "name: 'projects/secret/jobs/trained'"), job)
               .state() == v1::SUCCEEDED;
  }));
  const std::string name = "projects/secret/models/trained";
  // By an admin, because the model's owner does not see the other project.
  must(nullptr, "Share", "name: '" + name + "' with_project: 'projects/vision'");
  v1::Model seen = model("other", name);
  EXPECT_EQ(seen.owner(), "other");
  EXPECT_EQ(seen.job(), "projects/secret/jobs/trained");
  EXPECT_EQ(seen.dataset(), "projects/secret/datasets/iris@1");
  seen = model("member", name);
  EXPECT_EQ(seen.name(), name);
  EXPECT_EQ(seen.job(), "");
  EXPECT_EQ(seen.dataset(), "");
  must(nullptr, "Share", "name: 'projects/secret/datasets/iris' with_project: 'projects/vision'");
  EXPECT_EQ(model("member", name).dataset(), "projects/secret/datasets/iris@1");
  EXPECT_EQ(model("member", name).job(), "");

  // A later model of the same name is another one.
  must(as("other"), "DeleteModel", "name: '" + name + "'");
  EXPECT_EQ(call(as("member"), "GetModel", "name: '" + name + "'").reason(), "PROJECT_NOT_FOUND");
}

TEST_F(ServiceProjectMembers, OnlyTheOwnerAndMaintainersAddVersionsToADataset) {
  const std::string data = upload_to("vision", "a,species\n1,x\n2,y\n3,x\n4,y\n");
  const std::string request =
      "parent: 'projects/vision' dataset_id: 'iris' spec { sources { role: DATA sha256: '" + data +
      "' } csv { target: 'species' } }";
  EXPECT_EQ(call(as("member"), "CreateDataset", request).reason(), "ROLE_REQUIRED");
  v1::Dataset dataset;
  parsed(must(as("maintainer"), "CreateDataset", request), dataset);
  EXPECT_EQ(dataset.version(), 2);
  EXPECT_EQ(dataset.owner(), "maintainer");
  parsed(must(as("member"), "CreateDataset", request), dataset);
  EXPECT_EQ(dataset.version(), 2) << "the same content changes nothing";
}

}  // namespace
}  // namespace trainyard::server
