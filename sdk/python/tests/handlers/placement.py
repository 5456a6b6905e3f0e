"""A handler of the framework that this package replaces, with only its import line changed."""

from pydantic import BaseModel
from leasehold_handler import run_handler, WorkerRequest, NonEmptyStr


class PlacementRequest(WorkerRequest):
    asset_upload_type: NonEmptyStr
    bucket: NonEmptyStr
    key: NonEmptyStr


class PlacementVerdict(BaseModel):
    is_valid: bool


def _handle(request: PlacementRequest) -> PlacementVerdict:
    return PlacementVerdict(is_valid=request.key.endswith(".wav"))


def main() -> None:
    run_handler(PlacementRequest, _handle)


if __name__ == "__main__":
    main()
