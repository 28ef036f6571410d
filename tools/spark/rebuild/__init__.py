"""The plan of a rebuild: a folder of Parquet tables made from message files and the user area, and its loading.

`plan` is the format; `plantasks` makes it by functions of one task each, run in this process or by Spark
(`rebuildjob`); `planload` loads it into a store that is down, `planlive` applies it to a store in use.
"""
