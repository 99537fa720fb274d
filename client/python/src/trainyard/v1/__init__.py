"""The messages of the API, generated from proto/trainyard/v1, whose comments describe each field."""

from trainyard.v1.dataset_service_pb2 import *
from trainyard.v1.job_service_pb2 import *
from trainyard.v1.job_spec_pb2 import *
from trainyard.v1.layer_spec_pb2 import *
from trainyard.v1.model_service_pb2 import *
from trainyard.v1.model_spec_pb2 import *
from trainyard.v1.people_service_pb2 import *
from trainyard.v1.spec_file_pb2 import *
from trainyard.v1.spec_options_pb2 import *
from trainyard.v1.system_service_pb2 import *
