"""Manifests of delete files, which PyIceberg reads and does not write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pyiceberg.manifest import DataFile, ManifestFile, ManifestWriter
    from pyiceberg.partitioning import PartitionSpec


class DeleteManifests:
    """Writes manifests of delete files for a snapshot producer of PyIceberg's."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)  # a producer to whoever merges manifests

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        """What PyIceberg has for data files alone."""
        from pyiceberg.manifest import ManifestContent, ManifestWriterV2

        class Writer(ManifestWriterV2):
            def content(self) -> ManifestContent:
                return ManifestContent.DELETES

            @property
            def _meta(self) -> dict[str, str]:
                return {**super()._meta, "content": "deletes"}

        producer = self._producer
        output = producer.new_manifest_output()
        return Writer(spec, producer.schema(), output, producer.snapshot_id, producer._compression)

    def added(self, files: Iterable[DataFile]) -> list[ManifestFile]:
        """Manifests of new delete files: one for each layout of partitions, which an older file may have another of."""
        from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus

        by_spec: dict[int, list[DataFile]] = {}
        for file in files:
            by_spec.setdefault(file.spec_id, []).append(file)
        written = []
        for spec_id, some in by_spec.items():
            with self.new_manifest_writer(self._producer.spec(spec_id)) as writer:
                for file in some:
                    entry = ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED,
                        snapshot_id=self._producer.snapshot_id,
                        sequence_number=None,
                        file_sequence_number=None,
                        data_file=file,
                    )
                    writer.add(entry)
            written.append(writer.to_manifest_file())
        return written

    def without(self, manifests: Iterable[ManifestFile], gone: Collection[str]) -> list[ManifestFile]:
        """The same manifests; those that have any of some files are written anew, where these are marked as deleted."""
        found = []
        for manifest in manifests:
            entries = self._producer.fetch_manifest_entry(manifest)
            if all(entry.data_file.file_path not in gone for entry in entries):
                found.append(manifest)
                continue
            with self.new_manifest_writer(self._producer.spec(manifest.partition_spec_id)) as writer:
                for entry in entries:
                    put = writer.delete if entry.data_file.file_path in gone else writer.existing
                    put(entry)
            found.append(writer.to_manifest_file())
        return found

    def merged(self, manifests: list[ManifestFile], size: int, count: int) -> list[ManifestFile]:
        """Manifests of delete files, of up to so many bytes; those with new files first, merged from so many on."""
        from pyiceberg.table.update.snapshot import _ManifestMergeManager

        merging: _ManifestMergeManager[Any] = _ManifestMergeManager(
            target_size_bytes=size,
            min_count_to_merge=count,
            merge_enabled=True,
            snapshot_producer=self,  # type: ignore[arg-type]
        )
        return merging.merge_manifests(manifests)
